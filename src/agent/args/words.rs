//! The words of a command line, taken one by one, and what each may be.

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use crate::agent::fault::Fault;
use crate::agent::kernel::Isolation;

/// Longest time that an option takes: more than any of them can need.
const MAX_MS: u64 = 600_000;
/// Most times that a repeatable option may be given.
const MAX_REPEATS: usize = 64;

pub(super) fn unknown(option: &str, command: &str) -> Fault {
    Fault::usage(&format!("unknown option {option} of {command}"))
}

pub(super) fn push<T>(list: &mut Vec<T>, option: &str, value: T) -> Result<(), Fault> {
    if list.len() == MAX_REPEATS {
        return Err(Fault::usage(&format!("{option} is given more than {MAX_REPEATS} times")));
    }
    list.push(value);
    Ok(())
}

/// The words that are left.
pub(super) struct Words {
    pub(super) inner: std::vec::IntoIter<OsString>,
}

impl Words {
    /// The next option's name, or `None` at the end.
    pub(super) fn option(&mut self, command: &str) -> Result<Option<String>, Fault> {
        let Some(word) = self.inner.next() else { return Ok(None) };
        match word.to_str() {
            Some(name) if name.starts_with("--") => Ok(Some(name.to_owned())),
            _ => Err(Fault::usage(&format!("unexpected argument {} of {command}", word.display()))),
        }
    }

    pub(super) fn value(&mut self, option: &str) -> Result<OsString, Fault> {
        self.inner.next().ok_or_else(|| Fault::usage(&format!("{option} needs a value")))
    }

    pub(super) fn isolation(&mut self, option: &str) -> Result<Isolation, Fault> {
        let value = self.value(option)?;
        value
            .to_str()
            .and_then(Isolation::from_name)
            .ok_or_else(|| wrong(option, &value, "VirtualMachine, UserspaceKernel or SharedKernel"))
    }

    pub(super) fn address(&mut self, option: &str) -> Result<SocketAddr, Fault> {
        let value = self.value(option)?;
        let address = value.to_str().and_then(|text| text.parse().ok());
        address.ok_or_else(|| {
            wrong(option, &value, "an address with a port, such as 192.0.2.1:443 or [2001:db8::1]:443")
        })
    }

    pub(super) fn ip(&mut self, option: &str) -> Result<IpAddr, Fault> {
        let value = self.value(option)?;
        let address = value.to_str().and_then(|text| text.parse().ok());
        address.ok_or_else(|| wrong(option, &value, "an address such as 192.0.2.1 or 2001:db8::1"))
    }

    pub(super) fn millis(&mut self, option: &str) -> Result<Duration, Fault> {
        let value = self.value(option)?;
        let millis = value.to_str().and_then(|text| text.parse::<u64>().ok());
        match millis {
            Some(millis) if millis <= MAX_MS => Ok(Duration::from_millis(millis)),
            _ => Err(wrong(option, &value, "milliseconds from 0 to 600000")),
        }
    }

    pub(super) fn number(&mut self, option: &str, range: RangeInclusive<usize>) -> Result<usize, Fault> {
        let value = self.value(option)?;
        let number =
            value.to_str().and_then(|text| text.parse().ok()).filter(|number| range.contains(number));
        let expected = || format!("a number from {} to {}", range.start(), range.end());
        number.ok_or_else(|| wrong(option, &value, &expected()))
    }

    pub(super) fn absolute(&mut self, option: &str) -> Result<PathBuf, Fault> {
        let value = self.value(option)?;
        let path = Path::new(&value);
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if path.is_absolute() && path.components().all(plain) {
            return Ok(path.to_path_buf());
        }
        Err(wrong(option, &value, "an absolute path without .."))
    }

    pub(super) fn relative(&mut self, option: &str) -> Result<PathBuf, Fault> {
        let value = self.value(option)?;
        let path = Path::new(&value);
        let mut parts = path.components().peekable();
        if parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_))) {
            return Ok(path.to_path_buf());
        }
        Err(wrong(option, &value, "a relative path without .."))
    }
}

pub(super) fn wrong(option: &str, value: &OsStr, expected: &str) -> Fault {
    Fault::usage(&format!("{option} is {:?}, expected {expected}", value.to_string_lossy()))
}
