//! Device meshes, with a group for each named dimension, and Cartesian grids, with neighbours.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::communicator::Communicator;
use crate::errors::Raise;
use crate::interrupt::waiting;
use crate::world::World;

/// The ranks of a world as an array with named dimensions, and a group for each dimension: as torch's `DeviceMesh`.
///
/// >>> mesh = un.DeviceMesh(world, {"data": 1, "model": 1})
/// >>> mesh.names, mesh.group("model").all_reduce(np.ones(2)).tolist()
/// (['data', 'model'], [1.0, 1.0])
#[pyclass(frozen, module = "unisono")]
pub(crate) struct DeviceMesh {
    mesh: unisono::DeviceMesh,
}

#[pymethods]
impl DeviceMesh {
    /// All ranks of the world, in the order of their numbers: `DeviceMesh(world, {"data": 2, "model": 4})`. The last
    /// dimension has ranks that follow each other. Every rank makes the call.
    #[new]
    fn new(py: Python<'_>, world: &Bound<'_, World>, dimensions: &Bound<'_, PyDict>) -> PyResult<DeviceMesh> {
        let named: Vec<(String, u32)> = dimensions
            .iter()
            .map(|(name, size)| Ok((name.extract()?, size.extract()?)))
            .collect::<PyResult<_>>()?;
        let named: Vec<(&str, u32)> = named.iter().map(|(name, size)| (name.as_str(), *size)).collect();
        let mesh = unisono::DeviceMesh::new(&world.get().world, &named).raise(py)?;
        Ok(DeviceMesh { mesh })
    }

    /// The names of its dimensions.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.mesh.names().into_iter().map(str::to_owned).collect()
    }

    /// The number of ranks in each dimension.
    #[getter]
    fn shape(&self) -> Vec<u32> {
        self.mesh.shape()
    }

    /// The number of its ranks.
    #[getter]
    fn size(&self) -> u32 {
        self.mesh.size()
    }

    /// Its ranks of the job, row by row.
    #[getter]
    fn ranks(&self) -> Vec<u32> {
        self.mesh.ranks()
    }

    /// This rank's place in each dimension.
    #[getter]
    fn coordinate(&self) -> Vec<u32> {
        self.mesh.coordinate()
    }

    /// The group of the ranks that differ from this one in this dimension only. It is made at the first call.
    fn group(&self, py: Python<'_>, dimension: &str) -> PyResult<Communicator> {
        let group = waiting(py, || self.mesh.group(dimension))?;
        Ok(Communicator::new(group))
    }

    /// The mesh of some dimensions, in their order.
    fn submesh(&self, py: Python<'_>, dimensions: Vec<String>) -> PyResult<DeviceMesh> {
        let names: Vec<&str> = dimensions.iter().map(String::as_str).collect();
        Ok(DeviceMesh { mesh: self.mesh.submesh(&names).raise(py)? })
    }

    /// The mesh whose one dimension, of this name, is made of several.
    fn flatten(&self, py: Python<'_>, dimensions: Vec<String>, name: &str) -> PyResult<DeviceMesh> {
        let names: Vec<&str> = dimensions.iter().map(String::as_str).collect();
        Ok(DeviceMesh { mesh: self.mesh.flatten(&names, name).raise(py)? })
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.mesh)
    }
}

/// The ranks of a communicator as a grid, whose rows are lines or rings: as `MPI_Cart_create`.
///
/// >>> grid = un.Cartesian(world, [1, 1], [True, False])
/// >>> grid.shift(0), grid.shift(1)
/// ((0, 0), (None, None))
#[pyclass(frozen, module = "unisono")]
pub(crate) struct Cartesian {
    grid: unisono::Cartesian,
}

#[pymethods]
impl Cartesian {
    /// A grid with these sizes, whose product is the communicator's. Sends nothing.
    #[new]
    fn new(
        py: Python<'_>,
        communicator: &Bound<'_, Communicator>,
        dims: Vec<u32>,
        periodic: Vec<bool>,
    ) -> PyResult<Cartesian> {
        let grid = unisono::Cartesian::new(communicator.get().inner.clone(), &dims, &periodic).raise(py)?;
        Ok(Cartesian { grid })
    }

    /// Sizes for so many ranks that are near each other; a size that is not 0 stays.
    #[staticmethod]
    fn dims_create(py: Python<'_>, ranks: u32, dims: Vec<u32>) -> PyResult<Vec<u32>> {
        unisono::Cartesian::dims_create(ranks, &dims).raise(py)
    }

    /// The sizes of the grid.
    #[getter]
    fn dims(&self) -> Vec<u32> {
        self.grid.dims().to_vec()
    }

    /// Whether each dimension is a ring.
    #[getter]
    fn periodic(&self) -> Vec<bool> {
        self.grid.periodic().to_vec()
    }

    /// This rank's place.
    #[getter]
    fn coordinate(&self) -> Vec<u32> {
        self.grid.coordinate()
    }

    /// The communicator of its ranks.
    #[getter]
    fn communicator(&self) -> Communicator {
        Communicator::new(self.grid.communicator().clone())
    }

    /// The place of a rank.
    fn coordinate_of(&self, py: Python<'_>, rank: u32) -> PyResult<Vec<u32>> {
        self.grid.coordinate_of(rank).raise(py)
    }

    /// The rank at a place; `None` beyond the edge.
    fn rank_at(&self, py: Python<'_>, coordinate: Vec<i64>) -> PyResult<Option<u32>> {
        self.grid.rank_at(&coordinate).raise(py)
    }

    /// The source and the destination of a message along a dimension; `None` beyond the edge, a peer that sends and
    /// receives nothing.
    #[pyo3(signature = (dimension, displacement = 1))]
    fn shift(
        &self,
        py: Python<'_>,
        dimension: usize,
        displacement: i64,
    ) -> PyResult<(Option<u32>, Option<u32>)> {
        self.grid.shift(dimension, displacement).raise(py)
    }

    /// The grid of the ranks that differ from this one in the kept dimensions only. Collective.
    fn sub_grid(&self, py: Python<'_>, kept: Vec<bool>) -> PyResult<Cartesian> {
        let grid = waiting(py, || self.grid.sub_grid(&kept))?;
        Ok(Cartesian { grid })
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.grid)
    }
}
