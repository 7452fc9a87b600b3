//! An OCI archive of one layer, from a root file system that is a tar file already. Streams: the layer may be larger
//! than memory. Not compressed: an archive stays on this machine, where reading is cheaper than unpacking.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::architecture;
use super::store::hex;

/// What containers of the image start with.
pub(super) struct Config<'a> {
    /// `NAME=value` each.
    pub(super) environment: &'a [&'a str],
    /// The command.
    pub(super) command: &'a [&'a str],
    /// The user, as a number.
    pub(super) user: &'a str,
    /// The folder it starts in.
    pub(super) folder: &'a str,
    /// Labels.
    pub(super) labels: Value,
}

/// Writes the image `name`, made of the tar file `layer`, to `target`.
pub(super) fn write(name: &str, config: &Config<'_>, layer: &Path, target: &Path) -> Result<()> {
    let (digest, size) = digest(layer)?;
    let layer_type = "application/vnd.oci.image.layer.v1.tar";
    let layer_descriptor = descriptor(layer_type, &digest, size);
    let (config, config_descriptor) = blob(
        &json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "Env": config.environment, "Cmd": config.command, "User": config.user,
                "WorkingDir": config.folder, "Labels": config.labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        }),
        "application/vnd.oci.image.config.v1+json",
    );
    let manifest_type = "application/vnd.oci.image.manifest.v1+json";
    let (manifest, mut manifest_descriptor) = blob(
        &json!({
            "schemaVersion": 2, "mediaType": manifest_type,
            "config": config_descriptor, "layers": [layer_descriptor],
        }),
        manifest_type,
    );
    // containerd reads the one, other tools the other.
    manifest_descriptor["annotations"] =
        json!({"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name});
    let index = json!({"schemaVersion": 2, "manifests": [manifest_descriptor]}).to_string();

    let context = || target.display().to_string();
    let mut archive =
        Builder::new(BufWriter::with_capacity(1 << 20, File::create(target).with_context(context)?));
    add(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    add(&mut archive, "index.json", index.as_bytes())?;
    for bytes in [config, manifest] {
        add(&mut archive, &place(&hex(&Sha256::digest(&bytes))), &bytes)?;
    }
    let rootfs = BufReader::with_capacity(1 << 20, File::open(layer)?);
    archive.append_data(&mut header(size), place(&digest), rootfs).with_context(context)?;
    archive.into_inner()?.flush().with_context(context)
}

/// The digest of a file, in hex digits, and its size in bytes.
fn digest(path: &Path) -> Result<(String, u64)> {
    let context = || path.display().to_string();
    let mut file = File::open(path).with_context(context)?;
    let (mut hash, mut size, mut buffer) = (Sha256::new(), 0_u64, vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((hex(&hash.finalize()), size)),
            Ok(count) => {
                hash.update(buffer.get(..count).unwrap_or_default());
                size += u64::try_from(count)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).with_context(context),
        }
    }
}

fn blob(value: &Value, media_type: &str) -> (Vec<u8>, Value) {
    let bytes = value.to_string().into_bytes();
    let descriptor = descriptor(media_type, &hex(&Sha256::digest(&bytes)), bytes.len() as u64);
    (bytes, descriptor)
}

fn descriptor(media_type: &str, digest: &str, size: u64) -> Value {
    json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size})
}

fn place(digest: &str) -> String {
    format!("blobs/sha256/{digest}")
}

fn add<W: Write>(archive: &mut Builder<W>, path: &str, bytes: &[u8]) -> Result<()> {
    archive.append_data(&mut header(bytes.len() as u64), path, bytes).with_context(|| path.to_owned())
}

fn header(size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(size);
    header
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;

    fn unpack(path: &Path) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(File::open(path).unwrap());
        let mut files = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.insert(entry.path().unwrap().display().to_string(), bytes);
        }
        files
    }

    #[test]
    fn every_reference_leads_to_a_blob_with_that_digest_and_size() {
        let folder = std::env::temp_dir().join(format!("glovebox-oci-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let (layer, target) = (folder.join("layer.tar"), folder.join("image.tar"));
        fs::write(&layer, vec![7; (2 << 20) + 1]).unwrap();
        let config = Config {
            environment: &["PATH=/bin"],
            command: &["/bin/sh"],
            user: "65532",
            folder: "/workspace",
            labels: json!({"a": "b"}),
        };
        write("glovebox.dev/t:1", &config, &layer, &target).unwrap();
        let files = unpack(&target);
        fs::remove_dir_all(&folder).unwrap();

        let follow = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap();
            let bytes = &files[&digest.replace("sha256:", "blobs/sha256/")];
            assert_eq!(digest, format!("sha256:{}", hex(&Sha256::digest(bytes))));
            assert_eq!(descriptor["size"], bytes.len());
            bytes
        };
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], "glovebox.dev/t:1");
        let manifest: Value = serde_json::from_slice(follow(&index["manifests"][0])).unwrap();
        let config: Value = serde_json::from_slice(follow(&manifest["config"])).unwrap();
        assert_eq!(follow(&manifest["layers"][0]).len(), (2 << 20) + 1);
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        assert_eq!(config["config"]["User"], "65532");
    }
}
