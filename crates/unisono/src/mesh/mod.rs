//! Device meshes: the ranks of a world as an array with named dimensions, and a group for each dimension.
//!
//! | file | contents |
//! | --- | --- |
//! | `cartesian` | grids of the ranks of one communicator, with neighbours |
//! | `neighborhood` | exchanges with the neighbours in a grid |
//! | `arrangement` | which ranks differ in which dimensions only: arithmetic |
//! | `maker` | the maker of the groups: a world, or the ranks of `in_process` |

mod arrangement;
mod cartesian;
mod maker;
mod neighborhood;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use unisono_communicator::{Communicator, Error, GroupOptions, Result, Site};

use arrangement::{Arrangement, Ranks};
pub use cartesian::Cartesian;
use maker::Maker;

/// A base for a [`DeviceMesh`]: a [`World`](crate::World), or, in tests, the [`Groups`](crate::in_process::Groups) of a
/// rank that is a thread, in an [`Arc`].
pub trait MeshWorld: Maker + Clone + 'static {}

impl<M: Maker + Clone + 'static> MeshWorld for M {}

/// The ranks of a world as an array with named dimensions, as torch's `DeviceMesh`. Each dimension divides the world
/// into groups: two ranks are in one group of a dimension when their coordinates differ in this dimension only.
///
/// This is the mesh of `[("dp", 2), ("tp", 4)]` over 8 ranks. The groups of `tp` are its rows, the groups of `dp` its
/// columns. Rank 6 has the coordinate (1, 2) and is in the groups [4, 5, 6, 7] of `tp` and [2, 6] of `dp`.
///
/// ```text
///         tp 0  1  2  3
/// dp 0       0  1  2  3
///    1       4  5  6  7
/// ```
///
/// A group is made when [`DeviceMesh::group`] first asks for it, by its members alone. So ranks may ask in different
/// orders, and dimensions without use cost nothing. Clones and submeshes share the groups.
///
/// All ranks make the same meshes in the same order, and give a dimension the same name and the same options. Ranks
/// that differ learn it from the first call of a group, as [`World::make_group`](crate::World::make_group) says. The
/// keys of the groups begin with `DeviceMesh`.
///
/// | torch | here |
/// | --- | --- |
/// | `init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))` | [`DeviceMesh::new`] |
/// | `DeviceMesh("cpu", [[0, 2], [1, 3]], mesh_dim_names=("dp", "tp"))` | [`DeviceMesh::with_ranks`] |
/// | `mesh["tp"]`, `mesh["dp", "cp"]` | `mesh.submesh(&["tp"])`, `mesh.submesh(&["dp", "cp"])` |
/// | `mesh["dp", "cp"]._flatten("dp_cp")` | `mesh.flatten(&["dp", "cp"], "dp_cp")` |
/// | `get_group("tp")`, `get_all_groups()` | `group("tp")`, `groups()` |
/// | `get_local_rank("tp")`, `get_coordinate()` | `local_rank("tp")`, `coordinate()` |
/// | `size()`, `size(0)`, `shape`, `ndim` | `size()`, `size_of("dp")`, `shape()`, `ndim()` |
/// | `mesh_dim_names`, `mesh` | `names()`, `ranks()` |
/// | `backend_override={"dp": ...}` | `set_options("dp", ...)` |
///
/// Three things differ from torch. A mesh has all ranks of the world. A group has its ranks in the order of the mesh
/// (torch: `preserve_rank_order=True`), so [`DeviceMesh::local_rank`] is always the coordinate. And a dimension of all
/// ranks has a group of its own beside the world.
///
/// ```
/// use unisono::prelude::*;
/// use unisono::DeviceMesh;
///
/// let world = unisono::init()?;
/// let mesh = DeviceMesh::new(&world, &[("dp", world.size()), ("tp", 1)])?;
/// let mut gradients = vec![1.0f32; 1000];
/// mesh.group("dp")?.all_reduce(&mut gradients, ReduceOp::Avg)?;
/// assert_eq!(mesh.coordinate(), [world.rank(), 0]);
/// # Ok::<(), unisono::Error>(())
/// ```
///
/// A mesh is a handle of its world, and keeps the world open. A group that has failed stays so; a new mesh of the same
/// ranks has new groups.
///
/// In tests a mesh spans the threads of a process:
///
/// ```
/// use std::sync::Arc;
/// use unisono::prelude::*;
/// use unisono::DeviceMesh;
///
/// std::thread::scope(|scope| {
///     for (comm, groups) in in_process::world_with_groups(4) {
///         scope.spawn(move || {
///             let mesh = DeviceMesh::new(&Arc::new(groups), &[("dp", 2), ("tp", 2)]).unwrap();
///             let mut sum = [comm.rank()];
///             mesh.group("tp").unwrap().all_reduce(&mut sum, ReduceOp::Sum).unwrap();
///             assert_eq!(sum, [[0 + 1], [2 + 3]][mesh.coordinate()[0] as usize]);
///         });
///     }
/// });
/// ```
#[derive(Clone)]
pub struct DeviceMesh {
    whole: Arc<Whole>,
    axes: Vec<Arc<Axis>>,
}

/// The mesh of all ranks, which its submeshes share.
struct Whole {
    maker: Box<dyn Maker>,
    /// Keeps the keys of this mesh and of other meshes of its world apart.
    number: u64,
    arrangement: Arrangement,
    /// All dimensions that have a name: the dimensions of the arrangement, then the flattened ones.
    axes: Mutex<Vec<Arc<Axis>>>,
}

/// One named dimension.
struct Axis {
    name: String,
    /// The dimensions of the arrangement that make it up, in ascending order; several, if it is a flattened one.
    dimensions: Vec<usize>,
    group: Mutex<AxisGroup>,
}

#[derive(Default)]
struct AxisGroup {
    options: GroupOptions,
    made: Option<Arc<dyn Communicator>>,
}

impl Axis {
    fn new(name: &str, dimensions: Vec<usize>) -> Arc<Axis> {
        Arc::new(Axis { name: name.to_owned(), dimensions, group: Mutex::default() })
    }
}

/// The data is valid at every step, so a panic of an earlier holder does no harm.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names the method and the line of its caller in errors of arguments.
#[track_caller]
fn in_call(method: &'static str) -> impl Fn(Error) -> Error {
    let site = Site::caller();
    move |error| error.in_call(&format_args!("DeviceMesh::{method} at {site}"))
}

/// A mesh that has all ranks, so that this rank is one of them.
fn whole(mesh: Result<Option<DeviceMesh>>) -> Result<DeviceMesh> {
    #[expect(clippy::expect_used, reason = "the list has every rank of the world")]
    mesh.map(|mesh| mesh.expect("this rank is in the mesh"))
}

impl DeviceMesh {
    /// A mesh of all ranks of a world: dimensions with their sizes, whose product is the size of the world. The ranks
    /// stand in their order, row-major: neighbours differ in the last dimension.
    ///
    /// No message is sent and no group is made; all ranks make their meshes in the same order.
    ///
    /// ```
    /// # let world = unisono::init()?;
    /// let mesh = unisono::DeviceMesh::new(&world, &[("dp", 1), ("tp", world.size())])?;
    /// assert_eq!(mesh.local_rank("tp")?, mesh.group("tp")?.rank());
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no dimension, for a name that is empty or comes twice, for the size 0, and when
    /// the product of the sizes is not the size of the world.
    #[doc(alias = "init_device_mesh")]
    #[track_caller]
    pub fn new(world: &impl MeshWorld, dimensions: &[(&str, u32)]) -> Result<DeviceMesh> {
        whole(DeviceMesh::over(world, dimensions, Ranks::All)).map_err(in_call("new"))
    }

    /// [`DeviceMesh::new`] with another order of the ranks, for instance by the hosts that they are on: `ranks` is the
    /// array in row-major order, and has every rank of the world once.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use unisono::{DeviceMesh, in_process};
    ///
    /// let (_, groups) = in_process::world_with_groups(4).remove(1);
    /// // [[0, 2],
    /// //  [1, 3]]
    /// let mesh = DeviceMesh::with_ranks(&Arc::new(groups), &[("dp", 2), ("tp", 2)], &[0, 2, 1, 3])?;
    /// assert_eq!(mesh.coordinate(), [1, 0]);
    /// assert_eq!(mesh.submesh(&["tp"])?.ranks(), [1, 3]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`DeviceMesh::new`]; [`Error::InvalidArgument`] for a rank that the world does not have, and for a rank that
    /// is missing or comes twice.
    #[doc(alias = "init_device_mesh")]
    #[track_caller]
    pub fn with_ranks(
        world: &impl MeshWorld,
        dimensions: &[(&str, u32)],
        ranks: &[u32],
    ) -> Result<DeviceMesh> {
        whole(DeviceMesh::over(world, dimensions, Ranks::Ordered(ranks))).map_err(in_call("with_ranks"))
    }

    /// [`DeviceMesh::with_ranks`] of some ranks of the world: `None` on a rank that is none of them. All ranks of the
    /// world call it, with the same list.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use unisono::{DeviceMesh, in_process};
    ///
    /// let mut world = in_process::world_with_groups(4);
    /// let [last, third] = [3, 2].map(|rank| Arc::new(world.remove(rank).1));
    /// let mesh = DeviceMesh::of_part(&last, &[("dp", 3)], &[3, 0, 1])?;
    /// assert_eq!(mesh.map(|mesh| mesh.coordinate()), Some(vec![0]));
    /// assert!(DeviceMesh::of_part(&third, &[("dp", 3)], &[3, 0, 1])?.is_none());
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`DeviceMesh::new`], with the number of ranks in place of the size of the world; [`Error::InvalidArgument`]
    /// for a rank that the world does not have, and for a rank that comes twice.
    #[track_caller]
    pub fn of_part(
        world: &impl MeshWorld,
        dimensions: &[(&str, u32)],
        ranks: &[u32],
    ) -> Result<Option<DeviceMesh>> {
        DeviceMesh::over(world, dimensions, Ranks::Part(ranks)).map_err(in_call("of_part"))
    }

    fn over(
        world: &impl MeshWorld,
        dimensions: &[(&str, u32)],
        ranks: Ranks<'_>,
    ) -> Result<Option<DeviceMesh>> {
        let arrangement = Arrangement::new(dimensions, ranks, world.rank_and_size())?;
        let names = dimensions.iter().enumerate();
        let axes: Vec<Arc<Axis>> = names.map(|(index, (name, _))| Axis::new(name, vec![index])).collect();
        // A refused mesh has no number, so that the numbers stay equal on all ranks.
        let (number, maker) = (world.next_mesh(), Box::new(world.clone()));
        Ok(arrangement.map(|arrangement| {
            let whole = Whole { maker, number, arrangement, axes: Mutex::new(axes.clone()) };
            DeviceMesh { whole: Arc::new(whole), axes }
        }))
    }

    /// The names of the dimensions, in order.
    #[doc(alias = "mesh_dim_names")]
    pub fn names(&self) -> Vec<&str> {
        self.axes.iter().map(|axis| axis.name.as_str()).collect()
    }

    /// The sizes of the dimensions, in order.
    pub fn shape(&self) -> Vec<u32> {
        self.axes.iter().map(|axis| self.whole.arrangement.size_along(&axis.dimensions)).collect()
    }

    /// The number of dimensions.
    pub fn ndim(&self) -> usize {
        self.axes.len()
    }

    /// The number of ranks of the mesh; for a submesh, the number of ranks of this rank's submesh.
    pub fn size(&self) -> u32 {
        self.shape().into_iter().product()
    }

    /// The ranks of the mesh, as ranks of the world in row-major order; for a submesh, the ranks of the submesh that
    /// this rank is in.
    #[doc(alias = "mesh")]
    pub fn ranks(&self) -> Vec<u32> {
        let dimensions: Vec<usize> = self.axes.iter().flat_map(|axis| axis.dimensions.clone()).collect();
        self.whole.arrangement.ranks_along(&dimensions)
    }

    /// The place of this rank in each dimension, in order.
    #[doc(alias = "get_coordinate")]
    pub fn coordinate(&self) -> Vec<u32> {
        self.axes.iter().map(|axis| self.whole.arrangement.place_along(&axis.dimensions)).collect()
    }

    /// The size of one dimension: how many ranks its groups have.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an unknown name.
    #[doc(alias = "size")]
    #[track_caller]
    pub fn size_of(&self, dimension: &str) -> Result<u32> {
        let axis = self.axis("dimension", dimension).map_err(in_call("size_of"))?;
        Ok(self.whole.arrangement.size_along(&axis.dimensions))
    }

    /// The place of this rank in one dimension, which is its rank in the group of the dimension.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an unknown name.
    #[doc(alias = "get_local_rank")]
    #[track_caller]
    pub fn local_rank(&self, dimension: &str) -> Result<u32> {
        let axis = self.axis("dimension", dimension).map_err(in_call("local_rank"))?;
        Ok(self.whole.arrangement.place_along(&axis.dimensions))
    }

    /// The group of this rank in one dimension: a communicator of the ranks that differ in this dimension only, in the
    /// order of the mesh. The first call makes it, at the cost of [`World::make_group`](crate::World::make_group).
    /// Later calls give the same communicator, also from clones, from submeshes and on other threads.
    ///
    /// A rank may ask for its groups in any order. Only a vendor's library makes a communicator together with its other
    /// members at once: there, members ask in orders in which no rank waits for itself, such as the order of
    /// [`DeviceMesh::groups`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an unknown name, and for an option that no group can have.
    /// [`Error::Closed`] after the world was closed, unless the group was made before. Otherwise as
    /// [`World::make_group`](crate::World::make_group): such an error is not remembered, but the other members may have
    /// learned of it, and all go on with a new mesh.
    #[doc(alias = "get_group")]
    #[track_caller]
    pub fn group(&self, dimension: &str) -> Result<Arc<dyn Communicator>> {
        let in_call = in_call("group");
        let axis = self.axis("dimension", dimension).map_err(&in_call)?;
        self.group_of(&axis).map_err(in_call)
    }

    /// The groups of all dimensions, in order, as [`DeviceMesh::group`] gives them. Groups that are not there yet are
    /// made.
    ///
    /// # Errors
    /// As [`DeviceMesh::group`].
    #[doc(alias = "get_all_groups")]
    #[track_caller]
    pub fn groups(&self) -> Result<Vec<Arc<dyn Communicator>>> {
        let groups: Result<Vec<_>> = self.axes.iter().map(|axis| self.group_of(axis)).collect();
        groups.map_err(in_call("groups"))
    }

    /// The mesh of some of the dimensions, in the order of this mesh. The ranks of the world fall into several such
    /// submeshes; this rank gets the submesh that it is in. A submesh of one dimension is one group of it. Its groups
    /// are the groups of this mesh.
    ///
    /// A name may also stand for a dimension that [`DeviceMesh::flatten`] has made.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use unisono::{DeviceMesh, in_process};
    ///
    /// let (_, groups) = in_process::world_with_groups(8).remove(6);
    /// let mesh = DeviceMesh::new(&Arc::new(groups), &[("dp", 2), ("pp", 2), ("cp", 2)])?;
    /// assert_eq!(mesh.submesh(&["cp"])?.ranks(), [6, 7]);
    /// assert_eq!(mesh.submesh(&["dp", "cp"])?.ranks(), [2, 3, 6, 7]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no name, for an unknown name, and for names in another order than in the mesh or
    /// with a common dimension.
    #[doc(alias = "__getitem__")]
    #[track_caller]
    pub fn submesh(&self, dimensions: &[&str]) -> Result<DeviceMesh> {
        let axes = self.axes_in_order(dimensions).map_err(in_call("submesh"))?;
        Ok(DeviceMesh { whole: self.whole.clone(), axes })
    }

    /// One dimension `name` instead of several: the mesh of one dimension whose groups are the submeshes of
    /// `dimensions`, with their ranks in row-major order.
    ///
    /// From then on this mesh, its clones, and all submeshes that have these dimensions know the name too: in
    /// [`DeviceMesh::group`], [`DeviceMesh::submesh`] and the like. The same dimensions under the same name give the
    /// same mesh again.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use unisono::{DeviceMesh, in_process};
    ///
    /// let (_, groups) = in_process::world_with_groups(8).remove(6);
    /// let mesh = DeviceMesh::new(&Arc::new(groups), &[("dp", 2), ("cp", 2), ("tp", 2)])?;
    /// let flat = mesh.flatten(&["dp", "cp"], "dp_cp")?;
    /// assert_eq!((flat.ranks(), flat.coordinate()), (vec![0, 2, 4, 6], vec![3]));
    /// assert_eq!(mesh.submesh(&["dp_cp", "tp"])?.shape(), [4, 2]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`DeviceMesh::submesh`]; [`Error::InvalidArgument`] for an empty name, and for a name that stands for other
    /// dimensions.
    #[doc(alias = "_flatten")]
    #[track_caller]
    pub fn flatten(&self, dimensions: &[&str], name: &str) -> Result<DeviceMesh> {
        let in_call = in_call("flatten");
        let parts = self.axes_in_order(dimensions).map_err(&in_call)?;
        let axis = self.flat_axis(&parts, name).map_err(in_call)?;
        Ok(DeviceMesh { whole: self.whole.clone(), axes: vec![axis] })
    }

    /// Sets the options of the groups of one dimension, before its first [`DeviceMesh::group`]. All ranks set the same.
    ///
    /// ```
    /// use std::time::Duration;
    /// use unisono::{DeviceMesh, GroupOptions};
    ///
    /// let world = unisono::init()?;
    /// let mesh = DeviceMesh::new(&world, &[("dp", world.size())])?;
    /// mesh.set_options("dp", &GroupOptions::new().timeout(Duration::from_secs(3600)))?;
    /// assert_eq!(mesh.group("dp")?.group().options().timeout, Some(Duration::from_secs(3600)));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an unknown name, for an option that no group can have, and when this rank has
    /// made the group already, with other options.
    #[doc(alias = "backend_override")]
    #[track_caller]
    pub fn set_options(&self, dimension: &str, options: &GroupOptions) -> Result<()> {
        let in_call = in_call("set_options");
        let axis = self.axis("dimension", dimension).map_err(&in_call)?;
        self.whole.maker.check_options(options).map_err(&in_call)?;
        let mut group = lock(&axis.group);
        if group.made.is_some() && group.options != *options {
            let problem = format!("the group of {dimension:?} was made with other options");
            return Err(in_call(Error::invalid("options", problem)));
        }
        group.options = *options;
        Ok(())
    }

    /// The dimension of this name, if it lies within this mesh.
    fn axis(&self, argument: &'static str, name: &str) -> Result<Arc<Axis>> {
        let is_within = |axis: &Axis| {
            let is_in = |dimension| self.axes.iter().any(|own| own.dimensions.contains(dimension));
            axis.dimensions.iter().all(is_in)
        };
        let axes = lock(&self.whole.axes);
        let found = axes.iter().find(|axis| axis.name == name && is_within(axis)).cloned();
        found.ok_or_else(|| Error::invalid(argument, format!("{name:?} is no dimension of {self:?}")))
    }

    /// The dimensions of these names, which together name each dimension of the arrangement at most once, in its order.
    fn axes_in_order(&self, names: &[&str]) -> Result<Vec<Arc<Axis>>> {
        let argument = "dimensions";
        let axes: Vec<Arc<Axis>> =
            names.iter().map(|name| self.axis(argument, name)).collect::<Result<_>>()?;
        let dimensions: Vec<usize> = axes.iter().flat_map(|axis| axis.dimensions.clone()).collect();
        if dimensions.is_empty() {
            return Err(Error::invalid(argument, "none, but a mesh has at least one"));
        }
        if !dimensions.is_sorted_by(|left, right| left < right) {
            let problem = format!("{names:?}, but each comes once, in the order of {self:?}");
            return Err(Error::invalid(argument, problem));
        }
        Ok(axes)
    }

    /// The dimension `name` that `parts` make up.
    fn flat_axis(&self, parts: &[Arc<Axis>], name: &str) -> Result<Arc<Axis>> {
        if name.is_empty() {
            return Err(Error::invalid("name", "empty"));
        }
        let dimensions: Vec<usize> = parts.iter().flat_map(|axis| axis.dimensions.clone()).collect();
        let mut axes = lock(&self.whole.axes);
        if let Some(known) = axes.iter().find(|axis| axis.name == name) {
            if known.dimensions == dimensions {
                return Ok(known.clone());
            }
            let ranks = self.whole.arrangement.ranks_along(&known.dimensions);
            let problem =
                format!("{name:?} is a dimension already, in which this rank is in the group {ranks:?}");
            return Err(Error::invalid("name", problem));
        }
        let axis = Axis::new(name, dimensions);
        axes.push(axis.clone());
        Ok(axis)
    }

    fn group_of(&self, axis: &Axis) -> Result<Arc<dyn Communicator>> {
        let Whole { maker, number, arrangement, .. } = &*self.whole;
        // Held while the group is made, so that two threads do not make two.
        let mut group = lock(&axis.group);
        if let Some(made) = &group.made {
            return Ok(made.clone());
        }
        let key = format!("DeviceMesh {number}, {}", axis.name);
        let made = maker.make_group(&key, &arrangement.ranks_along(&axis.dimensions), &group.options)?;
        group.made = Some(made.clone());
        Ok(made)
    }
}

impl fmt::Debug for DeviceMesh {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dimensions: Vec<(&str, u32)> = self.names().into_iter().zip(self.shape()).collect();
        write!(formatter, "DeviceMesh({})", arrangement::text(&dimensions))
    }
}
