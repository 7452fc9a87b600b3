//! What is mounted where, and how big: the workspace, scratch space, inputs, protected paths. Everything writable is
//! memory; everything else is read-only.

use super::{names, plan::Refusal};
use crate::api::{AgentSandboxSpec, Input, Isolation, Quantity, Reason, SandboxClassSpec};

/// Scratch volumes (/tmp, the cache, .git) are a quarter of the workspace each, and at least this many bytes.
const LEAST_SCRATCH: u64 = 16 << 20;
const SCRATCH_VOLUMES: u64 = 3;
/// The part of a VM's memory that tmpfs may fill, in hundredths: the guest's own tmpfs ends at half of its RAM, whatever
/// a volume's sizeLimit says, and the kernel needs the rest.
const VM_TMPFS_PERCENT: u64 = 45;

/// Places that belong to the image, the kernel or to us. Nothing may be mounted over them; below the starred, something may.
const SYSTEM: &[&str] = &[
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/boot",
    "/dev",
    "/proc",
    "/sys",
    "/run",
    "/var/run",
    "/usr",
    "/tmp",
    names::AGENT_DIR,
    names::TRUST_DIR,
    names::HOME,
];
/// Directories whose parts may be mounted over, but not themselves.
const SYSTEM_ROOTS: &[&str] = &["/etc", "/opt", "/root", "/var", "/home", "/mnt", "/media", "/srv"];

/// Mounts in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Where the workspace is.
    pub workspace: String,
    /// Its size in bytes.
    pub workspace_size: u64,
    /// Size of /tmp, of the cache and of `.git`, in bytes each.
    pub scratch_size: u64,
    /// Read-only inputs.
    pub inputs: Vec<Input>,
    /// The workspace's own `.git`, unless an input hides it. A volume of its own, since the parent of a protected directory
    /// could be renamed away if it were the workload's.
    pub git: Option<String>,
    /// Protected directories, absolute, ascending, without repetition.
    pub protected: Vec<String>,
}

/// Judges sizes and places.
///
/// # Errors
/// Names the field that does not fit, and what would.
pub(super) fn plan(
    spec: &AgentSandboxSpec,
    class: &SandboxClassSpec,
    memory: u64,
) -> Result<Storage, Refusal> {
    let workspace = spec.workspace.mount_path.clone();
    let (workspace_size, scratch_size) = sizes(spec, class, memory)?;
    place("spec.workspace.mountPath", &workspace)?;
    if SYSTEM_ROOTS.contains(&workspace.as_str()) {
        return Err(taken("spec.workspace.mountPath", &workspace));
    }
    let mut seen: Vec<&str> = vec![&workspace];
    for input in &spec.workspace.inputs {
        let field = format!("spec.workspace.inputs[{}].mountPath", input.name);
        place(&field, &input.mount_path)?;
        if [&input.image, &input.config_map, &input.persistent_volume_claim].into_iter().flatten().count()
            != 1
        {
            let message = format!(
                "spec.workspace.inputs[{}] needs exactly one of image, configMap and persistentVolumeClaim",
                input.name
            );
            return Err(Refusal::accepted(Reason::InvalidSpec, message));
        }
        if SYSTEM_ROOTS.contains(&input.mount_path.as_str()) {
            return Err(taken(&field, &input.mount_path));
        }
        if seen.iter().any(|other| *other == input.mount_path || within(other, &input.mount_path)) {
            let message = format!(
                "{field} {:?} is mounted over another mount; choose a path of its own",
                input.mount_path
            );
            return Err(Refusal::accepted(Reason::InvalidSpec, message));
        }
        seen.push(&input.mount_path);
    }
    let protected = protected(spec, &workspace)?;
    let git = Some(format!("{workspace}/.git")).filter(|git| protected.iter().any(|path| within(path, git)));
    Ok(Storage {
        workspace,
        workspace_size,
        scratch_size,
        inputs: spec.workspace.inputs.clone(),
        git,
        protected,
    })
}

fn sizes(spec: &AgentSandboxSpec, class: &SandboxClassSpec, memory: u64) -> Result<(u64, u64), Refusal> {
    let read = |field: &str, quantity: &Quantity| {
        quantity.units().map_err(|why| Refusal::accepted(Reason::InvalidSpec, format!("{field}: {why}")))
    };
    let asked = spec.workspace.size.as_ref().unwrap_or(&class.workspace.default_size);
    let size = read("spec.workspace.size", asked)?;
    let most = read("the class's spec.workspace.maxSize", &class.workspace.max_size)?;
    if size > most {
        let message =
            format!("spec.workspace.size is {asked}, the class allows at most {}", class.workspace.max_size);
        return Err(Refusal::accepted(Reason::ExceedsClass, message));
    }
    if size < 1 << 20 {
        return Err(Refusal::accepted(
            Reason::InvalidSpec,
            format!("spec.workspace.size is {asked}, at least 1Mi is needed"),
        ));
    }
    let scratch = (size / 4).max(LEAST_SCRATCH);
    let total = size.saturating_add(SCRATCH_VOLUMES * scratch);
    let room = match class.runtime.isolation {
        Isolation::VirtualMachine => memory / 100 * VM_TMPFS_PERCENT,
        Isolation::UserspaceKernel | Isolation::SharedKernel => memory,
    };
    if total > room {
        let shown = |bytes: u64| Quantity::from_bytes(bytes.next_multiple_of(1 << 20));
        let share = if class.runtime.isolation == Isolation::VirtualMachine { "0.45 of " } else { "" };
        let message = format!(
            "spec.workspace.size {asked} with scratch space makes {}, more than {share}spec.resources.memory {}; ask for less workspace or more memory",
            shown(total),
            Quantity::from_bytes(memory),
        );
        return Err(Refusal::accepted(Reason::InvalidSpec, message));
    }
    Ok((size, scratch))
}

fn taken(field: &str, path: &str) -> Refusal {
    Refusal::accepted(
        Reason::InvalidSpec,
        format!("{field} {path:?} is a place of the image or of Glovebox; choose another"),
    )
}

/// Whether `path` is strictly below `dir`... or `dir` below `path`: a mount over the parent of another hides it.
fn within(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a relative path says where it leads, to every reader alike: a colon ends a path for some runtimes.
fn is_plain(path: &str) -> bool {
    path.split('/').all(|part| {
        !matches!(part, "" | "." | "..")
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
    })
}

fn place(field: &str, path: &str) -> Result<(), Refusal> {
    if !path.strip_prefix('/').is_some_and(is_plain) {
        let message = format!(
            "{field} {path:?} must be absolute, of letters, digits and ._-, without empty parts, . and .."
        );
        return Err(Refusal::accepted(Reason::InvalidSpec, message));
    }
    let bad = SYSTEM.iter().any(|system| path == *system || within(path, system) || within(system, path));
    if bad { Err(taken(field, path)) } else { Ok(()) }
}

fn protected(spec: &AgentSandboxSpec, workspace: &str) -> Result<Vec<String>, Refusal> {
    let mut all = Vec::new();
    for path in
        names::PROTECTED.iter().copied().chain(spec.workspace.protected_paths.iter().map(String::as_str))
    {
        if !is_plain(path) {
            let message = format!(
                "spec.workspace.protectedPaths {path:?} must be below the workspace, of letters, digits and ._-, without empty parts, . and .."
            );
            return Err(Refusal::accepted(Reason::InvalidSpec, message));
        }
        let full = format!("{workspace}/{path}");
        let hidden = |input: &&Input| full == input.mount_path || within(&full, &input.mount_path);
        // Below an input everything is read-only already, and nothing can be mounted in it.
        if spec.workspace.inputs.iter().find(hidden).is_none() {
            all.push(full);
        }
    }
    all.sort_unstable();
    all.dedup();
    // An empty read-only directory has no room for a mount point: the outer one covers the inner.
    let outer = all.clone();
    all.retain(|path| !outer.iter().any(|other| within(path, other)));
    let covers = |input: &&Input| all.iter().any(|path| within(&input.mount_path, path));
    if let Some(input) = spec.workspace.inputs.iter().find(covers) {
        let message = format!(
            "spec.workspace.inputs[{}].mountPath {:?} lies in a protected path; choose another",
            input.name, input.mount_path
        );
        return Err(Refusal::accepted(Reason::InvalidSpec, message));
    }
    Ok(all)
}
