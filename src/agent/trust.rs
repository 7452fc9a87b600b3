//! Owns the files that say whom a sandbox trusts: the installation's authority beside those that the image brings.
//!
//! Variables that programs read for this put their file in place of what the image has, so that the image's own must be in
//! it. The image is anybody's: what stands at the well-known places may be missing, endless, no file at all, or no
//! certificates. Must take certificates alone from there, and never wait for it.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::libc;

use super::args::TrustArgs;
use super::fault::Fault;
use crate::pem::{self, files};

/// Where images keep the authorities that they trust, below the root.
pub const PLACES: [&str; 7] = [
    // Debian, Ubuntu, Alpine, Arch, Gentoo, distroless.
    "etc/ssl/certs/ca-certificates.crt",
    // Fedora, RHEL and their kin; the first is a link to the second in some of them.
    "etc/pki/tls/certs/ca-bundle.crt",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    // openSUSE.
    "etc/ssl/ca-bundle.pem",
    // Images made by Nix.
    "etc/ssl/certs/ca-bundle.crt",
    // OpenELEC, and Alpine without ca-certificates.
    "etc/pki/tls/cacert.pem",
    "etc/ssl/cert.pem",
];
/// Most that is read of one place, in bytes: ten times what the web's authorities take.
pub const MOST: u64 = 2 << 20;

/// Writes the files; `root` is where the image is.
///
/// # Errors
/// A [`Fault`] that names the file which can't be written. What is wrong with the image's authorities is said on standard
/// error: the sandbox then trusts fewer.
pub fn establish(args: &TrustArgs, root: &Path) -> Result<(), Fault> {
    let bundle = args.directory.join(files::BUNDLE);
    let images = PLACES.iter().find_map(|place| look(&root.join(place))).unwrap_or_default();
    if images.is_empty() {
        eprintln!(
            "glovebox-agent: the image has no certificates of authorities at {}: programs that use {} trust the authority of this \
             installation alone; install ca-certificates in the image to reach hosts whose TLS is not opened",
            Path::new("/").join(PLACES[0]).display(),
            bundle.display(),
        );
    }
    write_file(&args.directory.join(files::AUTHORITY), &args.authority)?;
    // Ours first: whatever a reader makes of the rest, it has read that.
    write_file(&bundle, &(args.authority.clone() + &images))?;
    let mut wgetrc = String::new();
    // Writing to a String has no error to give.
    let _ = writeln!(wgetrc, "ca_certificate = {}", bundle.display());
    write_file(&args.directory.join(files::WGETRC), &wgetrc)
}

/// The certificates at a place; none if there are none, which is said unless nothing is there at all.
fn look(place: &Path) -> Option<String> {
    let say = |what: &str| eprintln!("glovebox-agent: {}: {what}", place.display());
    let (bytes, whole) = match read(place) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            say(&format!("the image's authorities can't be read: {error}"));
            return None;
        }
    };
    let found = pem::certificates(&bytes);
    if found.is_empty() {
        say("no certificate is in it");
        return None;
    }
    if !whole {
        say(&format!(
            "is longer than {MOST} bytes; the {} authorities that are whole before that count",
            found.len()
        ));
    }
    Some(found.concat())
}

/// The first bytes of a file, and whether that is all of it. What is no file is not waited for.
fn read(place: &Path) -> io::Result<(Vec<u8>, bool)> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(place)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes)?;
    let whole = bytes.len() as u64 <= MOST;
    bytes.truncate(usize::try_from(MOST).unwrap_or(usize::MAX));
    Ok((bytes, whole))
}

/// Writes a file that nobody is meant to change, in place of what is there.
fn write_file(path: &Path, text: &str) -> Result<(), Fault> {
    let write = || {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o444).open(path)?;
        file.write_all(text.as_bytes())?;
        // Whatever the umask said.
        file.set_permissions(Permissions::from_mode(0o444))
    };
    write().map_err(|error| Fault::io("write", path, &error))
}

#[cfg(test)]
mod tests;
