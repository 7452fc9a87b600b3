//! OCI image archives of one layer, made of files, without a registry or a builder. Deterministic: the same files
//! give the same bytes.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::recipe::hex;

/// Folders that an image has: mount points, and places for programs that are linked into `bin`.
const FOLDERS: [&str; 7] = ["bin", "dev", "etc", "proc", "sys", "tmp", "workspace"];

/// An image to be made.
pub(super) struct Image<'a> {
    /// Its name and tag.
    pub(super) name: &'a str,
    /// Programs: path in the image, file on this machine.
    pub(super) programs: &'a [(&'a str, PathBuf)],
    /// Symbolic links: path in the image, target.
    pub(super) links: &'a [(String, &'a str)],
    /// The entry point, and the command behind it.
    pub(super) entrypoint: &'a [&'a str],
    /// The arguments.
    pub(super) command: &'a [&'a str],
}

/// A blob of the archive, and the descriptor that points to it.
struct Blob {
    digest: String,
    bytes: Vec<u8>,
    descriptor: Value,
}

/// Writes the archive.
pub(super) fn write(image: &Image<'_>, target: &Path) -> Result<()> {
    let layer = blob(layer(image)?, "application/vnd.oci.image.layer.v1.tar");
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Entrypoint": image.entrypoint, "Cmd": image.command},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", layer.digest)]},
    });
    let config = blob(config.to_string().into_bytes(), "application/vnd.oci.image.config.v1+json");
    let manifest_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": manifest_type,
        "config": config.descriptor,
        "layers": [layer.descriptor],
    });
    let mut manifest = blob(manifest.to_string().into_bytes(), manifest_type);
    manifest.descriptor["annotations"] = json!({"io.containerd.image.name": image.name});
    let index = json!({"schemaVersion": 2, "manifests": [manifest.descriptor]}).to_string();

    let file = File::create(target).with_context(|| target.display().to_string())?;
    let mut archive = Builder::new(BufWriter::new(file));
    add(&mut archive, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    add(&mut archive, "index.json", 0o644, index.as_bytes())?;
    for blob in [config, layer, manifest] {
        add(&mut archive, &format!("blobs/sha256/{}", blob.digest), 0o644, &blob.bytes)?;
    }
    archive.into_inner()?.flush().with_context(|| target.display().to_string())
}

/// The machine's architecture by its name in images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn blob(bytes: Vec<u8>, media_type: &str) -> Blob {
    let digest = hex(&Sha256::digest(&bytes));
    let descriptor =
        json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len()});
    Blob { digest, bytes, descriptor }
}

fn layer(image: &Image<'_>) -> Result<Vec<u8>> {
    let mut layer = Builder::new(Vec::new());
    for folder in FOLDERS {
        let mut header = header(EntryType::Directory, if folder == "tmp" { 0o1777 } else { 0o755 }, 0);
        layer.append_data(&mut header, folder, [].as_slice())?;
    }
    for (path, source) in image.programs {
        let bytes = fs::read(source).with_context(|| source.display().to_string())?;
        add(&mut layer, path, 0o755, &bytes)?;
    }
    for (path, target) in image.links {
        layer.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, target)?;
    }
    Ok(layer.into_inner()?)
}

fn add<W: Write>(archive: &mut Builder<W>, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
    let mut header = header(EntryType::Regular, mode, u64::try_from(bytes.len())?);
    archive.append_data(&mut header, path, bytes).with_context(|| path.to_owned())
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use super::*;

    fn unpack(path: &Path) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(File::open(path).unwrap());
        let read = |entry: Result<tar::Entry<'_, File>, std::io::Error>| {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            (entry.path().unwrap().display().to_string(), bytes)
        };
        archive.entries().unwrap().map(read).collect()
    }

    #[test]
    fn digests_in_the_archive_are_those_of_its_blobs() {
        let folder = std::env::temp_dir().join(format!("glovebox-archive-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let (program, target) = (folder.join("p"), folder.join("i.tar"));
        fs::write(&program, b"program").unwrap();
        let programs = [("bin/p", program)];
        let links = [("bin/q".to_owned(), "p")];
        let name = "glovebox.dev/t:1";
        let image = Image { name, programs: &programs, links: &links, entrypoint: &["/bin/p"], command: &[] };
        write(&image, &target).unwrap();
        let files = unpack(&target);
        fs::remove_dir_all(&folder).unwrap();

        for (path, bytes) in &files {
            if let Some(digest) = path.strip_prefix("blobs/sha256/") {
                assert_eq!(digest, hex(&Sha256::digest(bytes)));
            }
        }
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let manifest = &index["manifests"][0];
        assert_eq!(manifest["annotations"]["io.containerd.image.name"], name);
        let digest = manifest["digest"].as_str().unwrap().replace(':', "/");
        let manifest: Value = serde_json::from_slice(&files[&format!("blobs/{digest}")]).unwrap();
        let layer = manifest["layers"][0]["digest"].as_str().unwrap().replace(':', "/");
        let layer = &files[&format!("blobs/{layer}")];
        assert!(layer.windows(7).any(|window| window == b"program"));
    }
}
