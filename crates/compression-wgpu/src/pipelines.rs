//! Every kernel compiled for a device, and the bindings that all of them have.

use unisono_communicator::Result;

use crate::link::Link;
use crate::shaders::{Kernel, STORAGE_BUFFERS};

/// The bindings of kernels, in the order of `kernels/wgsl/prelude.wgsl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Binding {
    Call,
    Input,
    Old,
    Magnitudes,
    Values,
    Scales,
    Codes,
    Result,
}

impl Binding {
    pub(crate) const ALL: [Binding; STORAGE_BUFFERS as usize] = [
        Binding::Call,
        Binding::Input,
        Binding::Old,
        Binding::Magnitudes,
        Binding::Values,
        Binding::Scales,
        Binding::Codes,
        Binding::Result,
    ];

    pub(crate) fn is_read_only(self) -> bool {
        match self {
            Binding::Call | Binding::Input | Binding::Old | Binding::Magnitudes => true,
            Binding::Values | Binding::Scales | Binding::Codes | Binding::Result => false,
        }
    }
}

/// Every kernel compiled for a device.
pub(crate) struct Pipelines {
    pub(crate) layout: wgpu::BindGroupLayout,
    pipelines: Vec<wgpu::ComputePipeline>,
}

impl Pipelines {
    pub(crate) fn new(link: &Link) -> Result<Pipelines> {
        let entries = Binding::ALL.map(|binding| wgpu::BindGroupLayoutEntry {
            binding: binding as u32,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only: binding.is_read_only() },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        });
        let descriptor = wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries };
        let (layout, whole) = link.checked("create_bind_group_layout", || {
            let layout = link.device.create_bind_group_layout(&descriptor);
            let whole = link.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(&layout)],
                immediate_size: 0,
            });
            (layout, whole)
        })?;
        let compile = |kernel: &Kernel| compile(link, &whole, kernel.name(), &kernel.source());
        let pipelines = Kernel::ALL.iter().map(compile).collect::<Result<Vec<_>>>()?;
        Ok(Pipelines { layout, pipelines })
    }

    pub(crate) fn of(&self, kernel: Kernel) -> &wgpu::ComputePipeline {
        &self.pipelines[kernel as usize]
    }
}

fn compile(
    link: &Link,
    layout: &wgpu::PipelineLayout,
    name: &str,
    source: &str,
) -> Result<wgpu::ComputePipeline> {
    link.checked(&format!("the shader {name}"), || {
        let module = link.device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(name),
            source: wgpu::ShaderSource::Wgsl(source.into()),
        });
        link.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(name),
            layout: Some(layout),
            module: &module,
            entry_point: Some(name),
            compilation_options: wgpu::PipelineCompilationOptions {
                // Kernels write workgroup memory before they read it.
                zero_initialize_workgroup_memory: false,
                ..wgpu::PipelineCompilationOptions::default()
            },
            cache: None,
        })
    })
}

#[cfg(test)]
mod tests {
    use unisono_communicator::Error;

    use super::*;
    use crate::adapter::{AdapterChoice, OpenOptions, open};

    #[test]
    fn a_shader_that_does_not_compile_is_an_error_that_names_it_and_the_adapter() {
        let options = OpenOptions { adapter: AdapterChoice::Software, limits: None };
        let (info, device, queue) = match open(&options) {
            Ok(opened) => opened,
            Err(error @ Error::LibraryMissing { .. }) => {
                return unisono_tests::skip("wgpu", &error.to_string());
            }
            Err(error) => panic!("{error}"),
        };
        let link = Link::new(&info, device, queue);
        let descriptor =
            wgpu::PipelineLayoutDescriptor { label: None, bind_group_layouts: &[], immediate_size: 0 };
        let layout = link.device.create_pipeline_layout(&descriptor);
        let fine = "@compute @workgroup_size(1) fn fine() {}";
        compile(&link, &layout, "fine", fine).unwrap();
        for (name, source, text) in [
            ("broken", "@compute @workgroup_size(1) fn broken() { let x: u32 = 1.5; }", "1.5"),
            ("absent", fine, "absent"),
            ("large", "@compute @workgroup_size(4096) fn large() {}", "4096"),
            ("sum", &Kernel::Sum.source(), "binding"),
        ] {
            let error = compile(&link, &layout, name, source).unwrap_err();
            let Error::Vendor { library, call, code: 1, text: found, .. } = &error else { panic!("{error}") };
            assert!(library.contains("llvmpipe"), "{library}");
            assert_eq!(**call, *format!("the shader {name}"));
            assert!(found.contains(text), "{found}");
        }
        // The device is as usable as before.
        compile(&link, &layout, "fine", fine).unwrap();
    }
}
