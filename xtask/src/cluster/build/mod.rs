//! Builds the cluster's parts into the user's cache, each under a key of its inputs: a fresh clone finds them, and a
//! change of one part rebuilds that one. A part appears in the cache whole or not at all.

mod archive;
mod golang;
mod recipe;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use self::archive::Image;
use self::recipe::{Hash, Part, RECIPES};
use crate::deps::{self, Need, need};
use crate::paths;
use crate::ui::{self, Estimate, Step};

/// Programs that the parts call, or that make them.
const NEEDS: [Need; 10] = [
    need("gcc", "gcc"),
    need("ip", "iproute2"),
    need("iptables", "iptables"),
    need("ipset", "ipset"),
    need("nft", "nftables"),
    need("conntrack", "conntrack"),
    need("mount", "mount"),
    need("setpriv", "util-linux"),
    need("runc", "runc"),
    Need { program: "busybox", package: "busybox-static", linked_statically: true },
];

/// Images that every cluster has, by the name of their archive.
pub(super) const IMAGES: [&str; 3] = ["pause", "busybox", "coredns"];

/// Where the parts are.
pub(super) struct Built {
    /// Folders with programs.
    pub(super) programs: Vec<PathBuf>,
    /// The folder with the images' archives.
    pub(super) images: PathBuf,
    /// Part and version.
    pub(super) versions: BTreeMap<String, String>,
}

/// The cache, and what belongs into it.
struct Shop {
    cache: PathBuf,
    parts: Vec<Part>,
    images: String,
}

/// Installs and builds whatever is missing, and says where everything is.
pub(super) fn build() -> Result<Built> {
    deps::ensure(&NEEDS)?;
    let shop = Shop::open()?;
    if !shop.complete() {
        shop.fill()?;
    }
    Ok(shop.built())
}

/// Folders of programs that are built already; none without Go, which names them.
pub(super) fn built() -> Vec<PathBuf> {
    let programs = Shop::open().map_or_else(|_| Vec::new(), |shop| shop.built().programs);
    programs.into_iter().filter(|folder| folder.is_dir()).collect()
}

impl Shop {
    fn open() -> Result<Self> {
        let go = deps::go_version()?;
        let parts: Vec<_> = RECIPES.iter().map(|recipe| recipe.part(&go)).collect::<Result<_>>()?;
        let images = images_key(&parts)?;
        Ok(Self { cache: paths::cache()?.join("cluster"), parts, images })
    }

    fn complete(&self) -> bool {
        let built = self.built();
        built.images.is_dir() && built.programs.iter().all(|folder| folder.is_dir())
    }

    fn built(&self) -> Built {
        let programs = self.parts.iter().map(|part| self.cache.join(&part.key)).collect();
        let versions = self.parts.iter().map(|part| (part.recipe.name.to_owned(), part.version.clone()));
        Built { programs, images: self.cache.join(&self.images), versions: versions.collect() }
    }

    fn fill(&self) -> Result<()> {
        let make = |name: &str| {
            let path = self.cache.join(name);
            fs::create_dir_all(&path).with_context(|| path.display().to_string()).map(|()| path)
        };
        let (logs, work) = (make("log")?, make("work")?);
        let _lock = lock(&self.cache)?;
        // What is there belongs to a build that was interrupted: we hold the lock.
        fs::remove_dir_all(work).context("the cache's work folder")?;
        let missing: Vec<_> = self.parts.iter().filter(|part| !self.cache.join(&part.key).is_dir()).collect();
        let times = Times::read(&self.cache);
        for (index, part) in missing.iter().enumerate() {
            let rest = missing[index + 1..].iter().map(|part| times.estimate(part)).sum();
            let estimate = Estimate { step: Some(times.estimate(part)), rest };
            let label =
                format!("building {} {} ({}/{})", part.recipe.name, part.version, index + 1, missing.len());
            let step = Step::estimated(label, estimate);
            let log = logs.join(format!("{}.log", part.recipe.name));
            self.add(&part.key, |source, out| golang::build(part, source, out, &log))?;
            Times::record(&self.cache, part.recipe.name, step.elapsed())?;
            step.done("");
        }
        if !self.cache.join(&self.images).is_dir() {
            let step = Step::start("making images");
            let coredns =
                self.parts.iter().find(|part| part.recipe.name == "coredns").context("no coredns")?;
            let coredns = self.cache.join(&coredns.key).join("coredns");
            self.add(&self.images, |_, out| images(&coredns, out))?;
            step.done("");
        }
        Ok(())
    }

    /// Makes a folder of the cache by `make`, which gets an empty folder to work in and the one to fill.
    fn add(&self, key: &str, make: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<()> {
        let work = self.cache.join("work");
        let (source, out) = (work.join("source"), work.join("out"));
        for folder in [&source, &out] {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        make(&source, &out)?;
        let target = self.cache.join(key);
        fs::rename(&out, &target).with_context(|| target.display().to_string())?;
        fs::remove_dir_all(&work).with_context(|| work.display().to_string())
    }
}

/// Keeps two builds from working at once; gone with this process.
fn lock(cache: &Path) -> Result<File> {
    let path = cache.join("lock");
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    if file.try_lock().is_err() {
        ui::say("another build is at work; waiting for it");
        file.lock().with_context(|| path.display().to_string())?;
    }
    Ok(file)
}

fn busybox() -> Result<PathBuf> {
    deps::find("busybox").context("no busybox; install busybox-static")
}

fn images_key(parts: &[Part]) -> Result<String> {
    let mut hash = Hash::new();
    let path = busybox()?;
    hash.add(&fs::read(&path).with_context(|| path.display().to_string())?);
    let coredns = parts.iter().find(|part| part.recipe.name == "coredns").context("no coredns")?;
    hash.add(coredns.key.as_bytes());
    Ok(format!("images-1-{}", hash.short()))
}

fn images(coredns: &Path, out: &Path) -> Result<()> {
    let busybox = busybox()?;
    let list = std::process::Command::new(&busybox).arg("--list").output().context("busybox --list")?;
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let names = list.lines().filter(|name| *name != "busybox" && !name.contains('/'));
    let links: Vec<_> = names.map(|name| (format!("bin/{name}"), "busybox")).collect();
    let shell = [("bin/busybox", busybox)];
    let pause = ["/bin/busybox", "tail", "-f", "/dev/null"];
    let dns = [("bin/coredns", coredns.to_owned())];
    let image =
        |name, programs, links, entrypoint, command| Image { name, programs, links, entrypoint, command };
    let made = [
        ("pause", image("glovebox.dev/pause:1", &shell, &[], &pause, &[])),
        ("busybox", image("glovebox.dev/busybox:1", &shell, &links, &[], &["sh"])),
        ("coredns", image("glovebox.dev/coredns:1", &dns, &[], &["/bin/coredns"], &[])),
    ];
    made.iter().try_for_each(|(name, image)| archive::write(image, &out.join(format!("{name}.tar"))))
}

/// How long each part took the last time.
struct Times(BTreeMap<String, u64>);

impl Times {
    fn file(cache: &Path) -> PathBuf {
        cache.join("seconds.json")
    }

    /// What is recorded; a missing or damaged record costs only the quality of an estimate.
    fn read(cache: &Path) -> Self {
        let text = fs::read(Self::file(cache)).unwrap_or_default();
        Self(serde_json::from_slice(&text).unwrap_or_default())
    }

    fn estimate(&self, part: &Part) -> Duration {
        self.0
            .get(part.recipe.name)
            .map_or_else(|| part.recipe.cold(), |seconds| Duration::from_secs(*seconds))
    }

    fn record(cache: &Path, name: &str, time: Duration) -> Result<()> {
        let Self(mut times) = Self::read(cache);
        times.insert(name.to_owned(), time.as_secs().max(1));
        let (file, new) = (Self::file(cache), cache.join("seconds.json.new"));
        fs::write(&new, serde_json::to_vec(&times)?).with_context(|| new.display().to_string())?;
        fs::rename(&new, &file).with_context(|| file.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_in_the_cache_whole_or_not_at_all() {
        let cache = std::env::temp_dir().join(format!("glovebox-shop-{}", std::process::id()));
        let shop = Shop { cache: cache.clone(), parts: Vec::new(), images: String::new() };
        let broken = shop.add("p-1", |_, out| {
            fs::write(out.join("half"), "").unwrap();
            anyhow::bail!("broken off")
        });
        assert!(broken.is_err() && !cache.join("p-1").exists());
        fs::remove_dir_all(cache.join("work")).unwrap();
        shop.add("p-1", |_, out| Ok(fs::write(out.join("whole"), "")?)).unwrap();
        assert!(cache.join("p-1/whole").exists() && !cache.join("p-1/half").exists());
        fs::remove_dir_all(&cache).unwrap();
    }

    #[test]
    fn an_estimate_is_the_last_measurement_or_else_the_table() {
        let cache = std::env::temp_dir().join(format!("glovebox-times-{}", std::process::id()));
        fs::create_dir(&cache).unwrap();
        let part = RECIPES[1].part("go1").unwrap();
        assert_eq!(Times::read(&cache).estimate(&part), Duration::from_secs(25));
        Times::record(&cache, "etcd", Duration::from_secs(7)).unwrap();
        assert_eq!(Times::read(&cache).estimate(&part), Duration::from_secs(7));
        fs::remove_dir_all(&cache).unwrap();
    }
}
