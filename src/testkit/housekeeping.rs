//! What the controller manager does: garbage collection by owner, the use of quotas, the end of namespaces.

use serde_json::{Value, json};

use super::{
    admission::{self, Usage},
    store::{Key, Store},
};

/// Lets each of them work until none has anything to do.
pub fn settle(store: &mut Store) {
    loop {
        let before = store.version();
        collect(store);
        count(store);
        end_namespaces(store);
        if store.version() == before {
            return;
        }
    }
}

/// Deletes what has owners of which none is alive, and what blocks the foreground deletion of its owner.
fn collect(store: &mut Store) {
    let keys: Vec<Key> = store.all().map(|(key, _)| key.clone()).collect();
    for key in &keys {
        let Some(object) = store.get(key) else { continue };
        let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let alive = |owner: &Value| store.alive(&owner["uid"]).is_some();
        let waits = |owner: &Value| {
            owner["blockOwnerDeletion"] == true
                && store.alive(&owner["uid"]).is_some_and(waits_for_dependents)
        };
        if !owners.is_empty() && (!owners.iter().any(alive) || owners.iter().any(waits)) {
            store.delete(key, &json!({})).unwrap();
        }
    }
    for key in keys {
        let Some(object) = store.get(&key).filter(|object| waits_for_dependents(object)) else { continue };
        let uid = &object["metadata"]["uid"];
        let blocks = |other: &Value| {
            other["metadata"]["ownerReferences"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|owner| owner["uid"] == *uid && owner["blockOwnerDeletion"] == true)
        };
        if !store.all().any(|(_, other)| blocks(other)) {
            store.remove(&key);
        }
    }
}

fn waits_for_dependents(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!("foregroundDeletion")))
}

/// Brings the use of every quota up to date; pods that ended do not count.
fn count(store: &mut Store) {
    let quotas: Vec<Key> = store.list("ResourceQuota", "").map(|(key, _)| key.clone()).collect();
    for key in quotas {
        let quota = store.get(&key).unwrap();
        let mut used: Usage =
            admission::read(&quota["spec"]["hard"]).into_keys().map(|name| (name, 0)).collect();
        let lives = |pod: &Value| !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        for (_, pod) in
            store.list("Pod", &key.namespace).filter(|(_, pod)| lives(pod) && admission::selects(quota, pod))
        {
            for (name, amount) in admission::usage(pod) {
                used.entry(name).and_modify(|sum| *sum += amount);
            }
        }
        let status = json!({"hard": quota["spec"]["hard"], "used": admission::write(&used)});
        if quota["status"] != status {
            store.edit(&key, |quota| quota["status"] = status);
        }
    }
}

/// Empties namespaces that are going, then lets them go.
fn end_namespaces(store: &mut Store) {
    let going: Vec<Key> = store
        .list("Namespace", "")
        .filter(|(_, namespace)| namespace["metadata"]["deletionTimestamp"].is_string())
        .map(|(key, _)| key.clone())
        .collect();
    for namespace in going {
        let inside: Vec<Key> =
            store.all().map(|(key, _)| key).filter(|key| key.namespace == namespace.name).cloned().collect();
        if inside.is_empty() {
            store.remove(&namespace);
        }
        for key in inside {
            store.delete(&key, &json!({})).unwrap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::clock::Clock;

    #[tokio::test(start_paused = true)]
    async fn dependents_go_with_the_last_owner() {
        let mut store = Store::new(Clock::start());
        let owner = Key::new("SandboxClass", "", "c");
        let uid = store.create(&owner, json!({"metadata": {}})).unwrap()["metadata"]["uid"].clone();
        let dependent = Key::new("PriorityClass", "", "p");
        store
            .create(
                &dependent,
                json!({"metadata": {"ownerReferences": [{"uid": uid, "blockOwnerDeletion": true}]}}),
            )
            .unwrap();
        settle(&mut store);
        assert!(store.get(&dependent).is_some());
        store.delete(&owner, &json!({"propagationPolicy": "Foreground"})).unwrap();
        assert!(store.get(&owner).is_some(), "foreground: the owner goes last");
        settle(&mut store);
        assert!(store.get(&owner).is_none() && store.get(&dependent).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_had_its_owner_goes_too() {
        let mut store = Store::new(Clock::start());
        let key = Key::new("Pod", "a", "p");
        store.create(&key, json!({"metadata": {"ownerReferences": [{"uid": "gone"}]}, "spec": {}})).unwrap();
        settle(&mut store);
        assert!(store.get(&key).is_none());
    }
}
