//! Where things may be mounted, and how big they may be.

use serde_json::{Value, json};

use super::{changed, good, planned, sandbox, vm_class, world};
use crate::{api::Reason, sandbox::World};

fn inputs(paths: &[&str]) -> World {
    let list: Vec<Value> = paths
        .iter()
        .enumerate()
        .map(|(at, path)| json!({"name": format!("i{at}"), "mountPath": path, "configMap": "c"}))
        .collect();
    changed(good(), &[("/spec/workspace/inputs", json!(list))])
}

#[track_caller]
fn invalid(world: &World, part: &str) {
    let found = super::refused(world);
    assert_eq!(found.reason, Reason::InvalidSpec, "{}", found.message);
    assert!(found.message.contains(part), "{part:?} is not in {:?}", found.message);
}

#[test]
fn places_that_belong_to_others_are_refused() {
    for path in [
        "/",
        "/bin",
        "/usr",
        "/usr/lib",
        "/lib64/x",
        "/proc",
        "/proc/self",
        "/sys",
        "/dev",
        "/dev/shm",
        "/run",
        "/var/run/secrets",
        "/boot",
        "/sbin",
        "/tmp",
        "/tmp/x",
        "/etc",
        "/home",
        "/home/sandbox",
        "/home/sandbox/.ssh",
        "/.glovebox",
        "/.glovebox/x",
        "/.glovebox-trust",
        "/var",
        "/opt",
        "/root",
    ] {
        invalid(&inputs(&[path]), "spec.workspace.inputs[i0].mountPath");
        if !path.contains("/.glovebox") {
            invalid(
                &changed(good(), &[("/spec/workspace/mountPath", json!(path))]),
                "spec.workspace.mountPath",
            );
        }
    }
}

#[test]
fn paths_mean_what_they_say() {
    for path in ["/a/../usr", "/a/./b", "/a//b", "/a/", "a/b", "", "/..", "/workspace/../etc"] {
        invalid(&inputs(&[path]), "spec.workspace.inputs[i0].mountPath");
        invalid(&changed(good(), &[("/spec/workspace/mountPath", json!(path))]), "spec.workspace.mountPath");
    }
    for path in ["../x", "a/../../x", "/etc", "a//b", ".", "..", "", "a/"] {
        invalid(
            &changed(good(), &[("/spec/workspace/protectedPaths", json!([path]))]),
            "spec.workspace.protectedPaths",
        );
    }
}

#[test]
fn mounts_hide_nothing() {
    invalid(&inputs(&["/workspace"]), "over another mount");
    invalid(&inputs(&["/data", "/data"]), "over another mount");
    invalid(&inputs(&["/data/sub", "/data"]), "over another mount");
    invalid(&inputs(&["/workspace/.vscode/x"]), "protected path");
    let elsewhere = changed(inputs(&["/work"]), &[("/spec/workspace/mountPath", json!("/work/space"))]);
    invalid(&elsewhere, "over another mount");
    // An inner mount on a read-only outer one needs its mount point there, which nobody can make.
    for paths in [
        &["/workspace/project", "/workspace/data"][..],
        &["/data", "/etc/agent"],
        &["/workspace/.git"],
        &["/workspace/.vscode"],
    ] {
        planned(&inputs(paths));
    }
}

#[test]
fn built_in_and_asked_paths_are_protected_once() {
    let storage = planned(&changed(
        good(),
        &[("/spec/workspace/protectedPaths", json!([".vscode", ".vscode/x", "ci", "ci", ".git"]))],
    ))
    .storage;
    let mut sorted = storage.protected.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(storage.protected, sorted);
    assert!(
        storage.protected.contains(&"/workspace/ci".to_owned())
            && storage.protected.contains(&"/workspace/.git".to_owned())
    );
    assert!(
        !storage.protected.iter().any(|path| path.ends_with(".vscode/x") || path.ends_with("hooks")),
        "the outer covers the inner"
    );
    assert_eq!(storage.git, None, "a .git that is protected wholly needs no volume");
    let plain = planned(&good()).storage;
    assert_eq!(plain.git.as_deref(), Some("/workspace/.git"));
    let hidden = planned(&inputs(&["/workspace/.git"])).storage;
    assert!(
        !hidden.protected.iter().any(|path| path.starts_with("/workspace/.git/")),
        "an input is read-only already"
    );
}

/// On a VM tmpfs may fill 0.45 of the memory; elsewhere all of it is charged to the limit.
#[test]
fn tmpfs_fits_the_memory() {
    let vm = |size: &str, memory: &str| {
        let fields = [("/spec/workspace/size", json!(size)), ("/spec/resources/memory", json!(memory))];
        changed(world(vm_class(), sandbox()), &fields)
    };
    // 256 MiB and three times 64 MiB are 448 MiB: 0.45 of 996 MiB, not of 995.
    planned(&vm("256Mi", "996Mi"));
    invalid(&vm("256Mi", "995Mi"), "0.45 of spec.resources.memory 995Mi");
    invalid(&vm("256Mi", "512Mi"), "448Mi");
    let shared = |memory: &str| changed(good(), &[("/spec/resources/memory", json!(memory))]);
    planned(&shared("448Mi"));
    invalid(&shared("447Mi"), "more memory");
}

#[test]
fn an_input_has_one_source() {
    for input in [
        json!({"name": "i", "mountPath": "/in"}),
        json!({"name": "i", "mountPath": "/in", "configMap": "c", "image": "a/b"}),
    ] {
        invalid(
            &changed(good(), &[("/spec/workspace/inputs", json!([input]))]),
            "exactly one of image, configMap and persistentVolumeClaim",
        );
    }
}
