//! What is built, from what: the table of parts, and the key of each, which changes with anything that goes into it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::paths;

/// Raised when the way of building changes without a change of its inputs.
const GENERATION: &str = "1";

/// A program: its file name, and the Go package it is built from.
pub(super) type Program = (&'static str, &'static str);

/// A group of programs built from one Go module of ours, `xtask/cluster/go/NAME`.
pub(super) struct Recipe {
    /// The part's name.
    pub(super) name: &'static str,
    /// The module whose version is the part's.
    pub(super) module: &'static str,
    /// What comes out.
    pub(super) programs: &'static [Program],
    /// Whether C is involved.
    pub(super) cgo: bool,
    /// A file of the recipe that takes the place of a file of a dependency: ours, and the one it replaces.
    pub(super) overlay: Option<(&'static str, &'static str)>,
    /// Seconds of a first build on 2 cores, downloads included: the estimate until there is a measurement.
    cold: u64,
}

/// Everything that is built with Go, in the order of building.
pub(super) const RECIPES: [Recipe; 8] = [
    Recipe {
        name: "kube",
        module: "k8s.io/kubernetes",
        programs: &[("kube", ".")],
        cgo: true,
        overlay: None,
        cold: 470,
    },
    Recipe {
        name: "etcd",
        module: "go.etcd.io/etcd/server/v3",
        programs: &[("etcd", "go.etcd.io/etcd/server/v3")],
        cgo: false,
        overlay: None,
        cold: 25,
    },
    Recipe {
        name: "containerd",
        module: "github.com/containerd/containerd/v2",
        programs: &[
            ("containerd", "github.com/containerd/containerd/v2/cmd/containerd"),
            ("containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"),
            ("ctr", "github.com/containerd/containerd/v2/cmd/ctr"),
        ],
        cgo: false,
        overlay: None,
        cold: 67,
    },
    Recipe {
        name: "cni",
        module: "github.com/containernetworking/plugins",
        programs: &[
            ("host-local", "github.com/containernetworking/plugins/plugins/ipam/host-local"),
            ("loopback", "github.com/containernetworking/plugins/plugins/main/loopback"),
            ("portmap", "github.com/containernetworking/plugins/plugins/meta/portmap"),
            ("ptp", "github.com/containernetworking/plugins/plugins/main/ptp"),
        ],
        cgo: false,
        overlay: None,
        cold: 6,
    },
    Recipe {
        name: "gvisor",
        module: "gvisor.dev/gvisor",
        programs: &[
            ("runsc", "gvisor.dev/gvisor/runsc"),
            ("containerd-shim-runsc-v1", "gvisor.dev/gvisor/shim"),
        ],
        cgo: false,
        overlay: Some(("oom_linux.go.txt", "github.com/containerd/containerd/v2/pkg/sys/oom_linux.go")),
        cold: 67,
    },
    Recipe {
        name: "kube-router",
        module: "github.com/cloudnativelabs/kube-router/v2",
        programs: &[("kube-router", "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router")],
        cgo: false,
        overlay: None,
        cold: 110,
    },
    Recipe {
        name: "coredns",
        module: "github.com/coredns/coredns",
        programs: &[("coredns", "github.com/coredns/coredns")],
        cgo: false,
        overlay: None,
        cold: 150,
    },
    Recipe {
        name: "helm",
        module: "helm.sh/helm/v4",
        programs: &[("helm", "helm.sh/helm/v4/cmd/helm")],
        cgo: false,
        overlay: None,
        cold: 125,
    },
];

/// One part, ready to be looked up in the cache or built.
pub(super) struct Part {
    /// How it is made.
    pub(super) recipe: &'static Recipe,
    /// The version of its main module.
    pub(super) version: String,
    /// The name of its folder in the cache: name, version and the hash of all inputs.
    pub(super) key: String,
}

impl Recipe {
    /// Where its go.mod is.
    pub(super) fn source(&self) -> PathBuf {
        paths::checkout().join("xtask/cluster/go").join(self.name)
    }

    /// The estimate for a machine that has never built it.
    pub(super) fn cold(&self) -> Duration {
        Duration::from_secs(self.cold)
    }

    /// What the linker is told.
    pub(super) fn linker_flags(&self, version: &str) -> String {
        let mut flags = "-s -w".to_owned();
        if self.name == "kube" {
            // What `kubectl version` and Helm read.
            let mut numbers = version.trim_start_matches('v').split('.');
            let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
            let values = [
                ("gitVersion", version),
                ("gitMajor", major),
                ("gitMinor", minor),
                ("gitTreeState", "clean"),
                ("buildDate", "1970-01-01T00:00:00Z"),
            ];
            for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
                for (name, value) in values {
                    flags.extend([" -X ", package, ".", name, "=", value]);
                }
            }
        }
        flags
    }

    /// Reads the inputs and computes version and key. `go` is what `go version` says.
    pub(super) fn part(&'static self, go: &str) -> Result<Part> {
        let inputs = inputs(&self.source())?;
        let module = inputs.iter().find(|(path, _)| path == "go.mod").map(|(_, text)| text.as_slice());
        let module = String::from_utf8_lossy(module.unwrap_or_default());
        let version = version(&module, self.module)
            .with_context(|| format!("{}/go.mod requires no {}", self.source().display(), self.module))?;
        let key = format!("{}-{version}-{}", self.name, self.hash(go, version, &inputs));
        Ok(Part { recipe: self, version: version.to_owned(), key })
    }

    fn hash(&self, go: &str, version: &str, inputs: &[(String, Vec<u8>)]) -> String {
        let mut fields = vec![GENERATION.to_owned(), go.to_owned(), self.linker_flags(version)];
        fields.push(format!("{:?} {} {:?}", self.programs, self.cgo, self.overlay));
        let mut hash = Hash::new();
        for field in &fields {
            hash.add(field.as_bytes());
        }
        for (path, text) in inputs {
            hash.add(path.as_bytes());
            hash.add(text);
        }
        hash.short()
    }
}

/// A hash over fields, none of which can pass for a part of another.
pub(super) struct Hash(Sha256);

impl Hash {
    /// The hash over no fields.
    pub(super) fn new() -> Self {
        Self(Sha256::new())
    }

    /// Adds a field.
    pub(super) fn add(&mut self, field: &[u8]) {
        self.0.update(u64::try_from(field.len()).unwrap_or(u64::MAX).to_le_bytes());
        self.0.update(field);
    }

    /// 48 bits of it, in hex: enough to tell builds of one part and version apart.
    pub(super) fn short(self) -> String {
        hex(&self.0.finalize()[..6])
    }
}

/// Bytes in hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The version that a go.mod requires of a module.
fn version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let line = line.trim();
        let line = line.strip_prefix("require ").unwrap_or(line);
        let (name, rest) = line.split_once(' ')?;
        (name == module && rest.starts_with('v')).then(|| rest.split_whitespace().next())?
    })
}

/// The files of a folder, by their path in it, in a fixed order.
fn inputs(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| next.display().to_string())? {
            let path = entry.with_context(|| next.display().to_string())?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
            found.push((name, fs::read(&path).with_context(|| path.display().to_string())?));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_has_its_module_and_a_key_of_its_own() {
        let parts: Vec<_> = RECIPES.iter().map(|recipe| recipe.part("go1").unwrap()).collect();
        let kube = &parts[0];
        assert_eq!(kube.version, "v1.37.2");
        assert!(kube.key.starts_with("kube-v1.37.2-") && kube.key.len() == "kube-v1.37.2-".len() + 12);
        assert!(
            kube.recipe.linker_flags(&kube.version).contains("k8s.io/component-base/version.gitMinor=37")
        );
    }

    #[test]
    fn a_key_changes_with_each_input() {
        let recipe = &RECIPES[1];
        let inputs = |text: &str| vec![("go.mod".to_owned(), text.as_bytes().to_vec())];
        let key = recipe.hash("go1", "v1", &inputs("a"));
        assert_eq!(key, recipe.hash("go1", "v1", &inputs("a")));
        assert_ne!(key, recipe.hash("go2", "v1", &inputs("a")));
        assert_ne!(key, recipe.hash("go1", "v1", &inputs("b")));
        assert_ne!(key, RECIPES[2].hash("go1", "v1", &inputs("a")));
    }

    #[test]
    fn fields_of_a_hash_do_not_run_together() {
        let hash = |fields: &[&str]| {
            let mut hash = Hash::new();
            for field in fields {
                hash.add(field.as_bytes());
            }
            hash.short()
        };
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
    }

    #[test]
    fn a_version_is_found_in_a_block_or_on_one_line() {
        let text = "module m\n\nrequire a.b/c v1.2.3\n\nrequire (\n\tx.y/z v0.1.0 // indirect\n)\nreplace q => q v9\n";
        assert_eq!(version(text, "a.b/c"), Some("v1.2.3"));
        assert_eq!(version(text, "x.y/z"), Some("v0.1.0"));
        assert_eq!(version(text, "q"), None);
    }
}
