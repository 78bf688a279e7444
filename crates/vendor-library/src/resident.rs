//! A library that stays in the process that has opened it, because it has threads, or memory of devices.

use std::sync::{Mutex, PoisonError};

use unisono_communicator::{Error, Result};

/// A library of which a process has one, as long as it lives.
pub trait Resident: Sized + Sync {
    /// The place of the library. The default names nothing, and stands for the open library.
    type Options: Default + PartialEq;

    /// Its name in errors.
    const NAME: &'static str;

    /// The field of the options that says where it is.
    const ARGUMENT: &'static str;

    /// Opens it.
    ///
    /// # Errors
    /// [`Failure`], which also says whether a part of it stays in the process.
    fn load(options: &Self::Options) -> Result<Self, Failure>;

    /// The options with which it was opened.
    fn options(&self) -> &Self::Options;

    /// Its first file, as it was asked for.
    fn file(&self) -> &str;
}

/// Why a library was not opened.
#[derive(Debug)]
pub enum Failure {
    /// Nothing of it is in the process: other files may be tried.
    Absent(Error),
    /// Parts of it are open, and would stand in for the files of another one.
    Spoilt(Error),
}

/// A process's state of a library.
#[derive(Debug, Default)]
pub enum Process<T: 'static> {
    /// Nothing was opened.
    #[default]
    Fresh,
    /// It is open.
    Open(&'static T),
    /// It was opened, and is of no use.
    Spoilt(Error),
}

impl<T: Resident> Process<T> {
    /// The library, which the first call opens. With options that name nothing, it is the open library.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for other files than the open ones. The error of [`Resident::load`], which every
    /// later call gives too if parts of the library have stayed.
    pub fn open(&mut self, options: &T::Options) -> Result<&'static T> {
        match self {
            Process::Open(library) if *options == T::Options::default() || options == library.options() => {
                return Ok(library);
            }
            Process::Open(library) => {
                let (file, name) = (library.file(), T::NAME);
                let problem =
                    format!("this process has opened {file}, and can have one {name}: start another");
                return Err(Error::invalid(T::ARGUMENT, problem));
            }
            Process::Spoilt(error) => return Err(error.clone()),
            Process::Fresh => {}
        }
        match T::load(options) {
            Ok(library) => {
                let library: &'static T = Box::leak(Box::new(library));
                *self = Process::Open(library);
                Ok(library)
            }
            Err(Failure::Absent(error)) => Err(error),
            Err(Failure::Spoilt(error)) => {
                *self = Process::Spoilt(error.clone());
                Err(error)
            }
        }
    }

    /// The same for the value that all threads share.
    ///
    /// # Errors
    /// As [`Process::open`].
    pub fn open_shared(process: &Mutex<Process<T>>, options: &T::Options) -> Result<&'static T> {
        // A library that panics while it is opened has left `Fresh`.
        process.lock().unwrap_or_else(PoisonError::into_inner).open(options)
    }
}
