//! What a sandbox trusts, whatever its image has at the well-known places.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use proptest::prelude::*;

use super::*;

const OURS: &str = "-----BEGIN CERTIFICATE-----\nMIIBours\n-----END CERTIFICATE-----\n";
const THEIRS: &str = "-----BEGIN CERTIFICATE-----\nMIICtheirs==\n-----END CERTIFICATE-----\n";

/// An image and the directory that is written to, removed at the end.
struct Image(PathBuf);

impl Image {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("glovebox-trust-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("written")).unwrap();
        for place in PLACES {
            fs::create_dir_all(path.join(place).parent().unwrap()).unwrap();
        }
        Self(path)
    }

    fn with(self, place: usize, content: impl AsRef<[u8]>) -> Self {
        fs::write(self.0.join(PLACES[place]), content).unwrap();
        self
    }

    fn directory(&self) -> PathBuf {
        self.0.join("written")
    }

    fn establish(&self) -> Result<(), Fault> {
        establish(&TrustArgs { authority: OURS.into(), directory: self.directory() }, &self.0)
    }

    fn bundle(&self) -> String {
        self.establish().unwrap();
        fs::read_to_string(self.directory().join(files::BUNDLE)).unwrap()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_images_authorities_stay_trusted_beside_ours() {
    for (place, name) in PLACES.iter().enumerate() {
        let image = Image::new().with(place, format!("# a root\n{THEIRS}"));
        assert_eq!(image.bundle(), format!("{OURS}{THEIRS}"), "{name}");
        let read = |name: &str| fs::read_to_string(image.directory().join(name)).unwrap();
        assert_eq!(read(files::AUTHORITY), OURS);
        let bundle = image.directory().join(files::BUNDLE);
        assert_eq!(read(files::WGETRC), format!("ca_certificate = {}\n", bundle.display()));
        let mode = fs::metadata(&bundle).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o444);
    }
}

#[test]
fn one_place_is_enough_and_the_first_counts() {
    let image = Image::new().with(0, THEIRS).with(3, OURS);
    assert_eq!(image.bundle(), format!("{OURS}{THEIRS}"));
    // Written again, it says the same: files that are there are replaced.
    assert_eq!(image.bundle(), format!("{OURS}{THEIRS}"));
}

#[test]
fn an_image_without_authorities_leaves_ours() {
    assert_eq!(Image::new().bundle(), OURS);
    assert_eq!(Image::new().with(0, "").bundle(), OURS);
    assert_eq!(Image::new().with(0, "no certificate").with(6, THEIRS).bundle(), format!("{OURS}{THEIRS}"));
}

/// A place that would make a reader wait, or read for ever.
#[test]
fn what_is_no_file_is_passed_over() {
    let image = Image::new().with(6, THEIRS);
    mkfifo(&image.0.join(PLACES[0]), Mode::S_IRWXU).unwrap();
    fs::create_dir(image.0.join(PLACES[1])).unwrap();
    symlink("/dev/zero", image.0.join(PLACES[2])).unwrap();
    symlink("ca-bundle.pem", image.0.join(PLACES[3])).unwrap();
    assert_eq!(image.bundle(), format!("{OURS}{THEIRS}"));
}

#[test]
fn an_endless_file_is_read_to_a_bound() {
    let many = THEIRS.repeat(usize::try_from(MOST).unwrap() / THEIRS.len() + 1000);
    let written = Image::new().with(0, &many).bundle();
    assert!(written.len() as u64 <= MOST + OURS.len() as u64 && written.starts_with(OURS));
    // What the bound cut in two is not written in part.
    assert_eq!(written.len() % THEIRS.len(), OURS.len() % THEIRS.len());
}

#[test]
fn a_directory_that_can_not_be_written_is_named() {
    let image = Image::new();
    fs::remove_dir(image.directory()).unwrap();
    let fault = image.establish().unwrap_err();
    assert!(
        fault.to_string().contains("cannot write") && fault.to_string().contains(files::AUTHORITY),
        "{fault}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_the_image_has_ours_is_trusted_and_nothing_but_certificates_is_written(
        parts in prop::collection::vec(prop_oneof![
            Just(THEIRS.as_bytes().to_vec()), Just(b"-----BEGIN CERTIFICATE-----\nMIIB".to_vec()),
            Just(b"-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----\n".to_vec()),
            prop::collection::vec(any::<u8>(), 0..200),
        ], 0..20)
    ) {
        let written = Image::new().with(0, parts.concat()).bundle();
        prop_assert!(written.starts_with(OURS));
        prop_assert_eq!(pem::certificates(written.as_bytes()).concat(), written.clone());
        prop_assert!(!pem::has_private_key(written.as_bytes()));
    }
}
