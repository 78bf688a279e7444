//! The choice of an adapter.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use unisono_communicator::{Error, Result, Severity, log};

use crate::error::{WgpuCode, failed, limited};
use crate::shaders::{LANES, STORAGE_BUFFERS, WORKGROUP_BYTES};

/// The adapter to open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AdapterChoice {
    /// A GPU: a discrete one if there is one, else an integrated or a virtual one. Never an adapter that computes on
    /// the processor, where [`unisono_compression::HostKernels`] are many times faster.
    #[default]
    Gpu,
    /// The first adapter of any kind whose name contains this text.
    Named(String),
    /// An adapter that computes on the processor, such as Mesa's llvmpipe: for tests.
    Software,
}

/// The options of a device.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The adapter.
    pub adapter: AdapterChoice,
    /// The limits to ask for; the adapter's own if `None`. A vector that is longer than
    /// `max_storage_buffer_binding_size` is worked on in several dispatches.
    pub limits: Option<wgpu::Limits>,
}

/// The adapters of this machine, in the order in which [`AdapterChoice::Named`] looks at them.
pub fn adapters() -> Vec<wgpu::AdapterInfo> {
    found().iter().map(wgpu::Adapter::get_info).collect()
}

fn found() -> Vec<wgpu::Adapter> {
    let descriptor = wgpu::InstanceDescriptor {
        backends: wgpu::Backends::PRIMARY,
        // No validation layers of Vulkan: wgpu validates its arguments.
        flags: wgpu::InstanceFlags::empty(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    };
    ready(wgpu::Instance::new(descriptor).enumerate_adapters(wgpu::Backends::PRIMARY))
}

/// The result of a future of wgpu, which off the web is there at once.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

/// An adapter as errors name it.
pub(crate) fn title(info: &wgpu::AdapterInfo) -> String {
    let wgpu::AdapterInfo { name, device_type, driver, driver_info, .. } = info;
    format!("{name} ({device_type:?}, {driver} {driver_info})")
}

/// The lower, the better; `None` if the choice excludes it.
fn preference(choice: &AdapterChoice, info: &wgpu::AdapterInfo) -> Option<u32> {
    use wgpu::DeviceType::{Cpu, DiscreteGpu, IntegratedGpu, Other, VirtualGpu};
    match (choice, info.device_type) {
        (AdapterChoice::Named(text), _) => info.name.contains(text.as_str()).then_some(0),
        (AdapterChoice::Gpu, DiscreteGpu) | (AdapterChoice::Software, Cpu) => Some(0),
        (AdapterChoice::Gpu, IntegratedGpu) => Some(1),
        (AdapterChoice::Gpu, VirtualGpu) => Some(2),
        (AdapterChoice::Gpu, Other) => Some(3),
        (AdapterChoice::Gpu, Cpu) | (AdapterChoice::Software, _) => None,
    }
}

/// The adapter of this choice.
fn choose(choice: &AdapterChoice) -> Result<wgpu::Adapter> {
    let mut adapters = found();
    let infos: Vec<_> = adapters.iter().map(wgpu::Adapter::get_info).collect();
    match chosen(choice, &infos) {
        Ok(index) => Ok(adapters.swap_remove(index)),
        Err(error) => Err(error),
    }
}

/// The index of the adapter to take.
fn chosen(choice: &AdapterChoice, infos: &[wgpu::AdapterInfo]) -> Result<usize> {
    let fitting = (0..infos.len()).filter_map(|index| Some((preference(choice, &infos[index])?, index)));
    if let Some((_, index)) = fitting.min() {
        return Ok(index);
    }
    let (library, reason, remedy) = match choice {
        AdapterChoice::Gpu => (
            "a GPU through wgpu".to_owned(),
            "computes on the processor",
            "install the driver of a GPU, ask for the software adapter (AdapterChoice::Software), or compress on the \
             host (HostKernels)",
        ),
        AdapterChoice::Named(text) => (
            format!("an adapter named {text:?} through wgpu"),
            "has another name",
            "take one of these names, or install its driver",
        ),
        AdapterChoice::Software => (
            "a software adapter through wgpu".to_owned(),
            "is a GPU",
            "install Mesa's software driver (Debian: mesa-vulkan-drivers, libvulkan1)",
        ),
    };
    let mut tried: Vec<String> = infos.iter().map(|info| format!("{} {reason}", title(info))).collect();
    if tried.is_empty() {
        tried.push("there is no adapter".to_owned());
    }
    Err(Error::LibraryMissing { library: library.into(), tried, remedy: remedy.into() })
}

/// The device of these options.
pub(crate) fn open(options: &OpenOptions) -> Result<(wgpu::AdapterInfo, wgpu::Device, wgpu::Queue)> {
    let adapter = choose(&options.adapter)?;
    let info = adapter.get_info();
    let limits = options.limits.clone().unwrap_or_else(|| adapter.limits());
    check_limits(&title(&info), &limits)?;
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("unisono"),
        required_features: wgpu::Features::empty(),
        required_limits: limits,
        ..wgpu::DeviceDescriptor::default()
    };
    let (device, queue) = ready(adapter.request_device(&descriptor))
        .map_err(|error| failed(&title(&info), "request_device", WgpuCode::Internal, error.to_string()))?;
    // wgpu panics at an error that no scope catches. All calls of this crate are made within scopes; another error
    // belongs to none of them.
    let name = title(&info);
    device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
        log(Severity::Warn, None, format_args!("{name}: {error}"));
    }));
    Ok((info, device, queue))
}

/// The limits that every kernel needs. Lengths of buffers are looked at when they are used.
pub(crate) fn check_limits(adapter: &str, limits: &wgpu::Limits) -> Result<()> {
    let needs: [(&str, u32, u32); 5] = [
        (
            "max_storage_buffers_per_shader_stage",
            STORAGE_BUFFERS,
            limits.max_storage_buffers_per_shader_stage,
        ),
        ("max_compute_invocations_per_workgroup", LANES as u32, limits.max_compute_invocations_per_workgroup),
        ("max_compute_workgroup_size_x", LANES as u32, limits.max_compute_workgroup_size_x),
        ("max_compute_workgroup_storage_size", WORKGROUP_BYTES, limits.max_compute_workgroup_storage_size),
        ("max_compute_workgroups_per_dimension", 1, limits.max_compute_workgroups_per_dimension),
    ];
    for (limit, needed, has) in needs {
        if has < needed {
            return Err(limited(adapter, "compression", limit, needed.into(), has.into()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str, device_type: wgpu::DeviceType) -> wgpu::AdapterInfo {
        let mut info = wgpu::AdapterInfo::new(device_type, wgpu::Backend::Vulkan);
        info.name = name.to_owned();
        info
    }

    #[test]
    fn a_software_adapter_is_taken_only_when_it_is_asked_for() {
        use wgpu::DeviceType::{Cpu, DiscreteGpu, IntegratedGpu, VirtualGpu};
        let all = [
            info("llvmpipe", Cpu),
            info("virtio", VirtualGpu),
            info("UHD", IntegratedGpu),
            info("H100", DiscreteGpu),
        ];
        let named = |text: &str| AdapterChoice::Named(text.to_owned());
        assert_eq!(chosen(&AdapterChoice::Gpu, &all).unwrap(), 3);
        assert_eq!(chosen(&AdapterChoice::Gpu, &all[..3]).unwrap(), 2);
        assert_eq!(chosen(&AdapterChoice::Gpu, &all[..2]).unwrap(), 1);
        assert_eq!(chosen(&AdapterChoice::Software, &all).unwrap(), 0);
        assert_eq!(chosen(&named("llvm"), &all).unwrap(), 0);
        assert_eq!(chosen(&named("U"), &all).unwrap(), 2);

        let error = chosen(&AdapterChoice::Gpu, &all[..1]).unwrap_err();
        assert!(
            error.to_string().contains("llvmpipe (Cpu,  ) computes on the processor; install"),
            "{error}"
        );
        let error = chosen(&named("MI300"), &all[2..3]).unwrap_err();
        assert!(error.to_string().contains("UHD (IntegratedGpu,  ) has another name; take one"), "{error}");
        let error = chosen(&AdapterChoice::Software, &[]).unwrap_err();
        assert!(error.to_string().contains("there is no adapter; install Mesa's software driver"), "{error}");
        assert!(matches!(error, Error::LibraryMissing { .. }) && error.is_before_start());
    }

    #[test]
    fn a_limit_that_is_too_small_is_named() {
        let baseline = wgpu::Limits::default();
        check_limits("x", &baseline).unwrap();
        let small = [
            (
                "max_storage_buffers_per_shader_stage = 8; x has 4",
                wgpu::Limits { max_storage_buffers_per_shader_stage: 4, ..baseline.clone() },
            ),
            (
                "max_compute_invocations_per_workgroup = 64; x has 32",
                wgpu::Limits { max_compute_invocations_per_workgroup: 32, ..baseline.clone() },
            ),
            (
                "max_compute_workgroups_per_dimension = 1; x has 0",
                wgpu::Limits { max_compute_workgroups_per_dimension: 0, ..baseline },
            ),
        ];
        for (text, limits) in small {
            let error = check_limits("x", &limits).unwrap_err();
            assert!(matches!(error, Error::Unsupported { backend: "wgpu", .. }));
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
