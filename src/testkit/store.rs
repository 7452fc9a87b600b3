//! Objects as JSON, with what an API server keeps about them: uid, version, generation, times, deletion.
//!
//! Knows nothing of HTTP and judges nothing that belongs to admission.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::{Value, json};

pub use super::object::{Key, Refused};
use super::{
    clock::{self, Clock},
    kinds::Kind,
    merge,
};

/// What was applied by whom: key, manager, subresource.
type Applied = BTreeMap<(Key, String, String), Value>;

/// All objects.
#[derive(Debug)]
pub struct Store {
    /// The time that is written into objects.
    pub clock: Clock,
    objects: BTreeMap<Key, Value>,
    applied: Applied,
    version: u64,
    born: u64,
}

impl Store {
    /// Empty.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, objects: BTreeMap::new(), applied: Applied::new(), version: 1, born: 0 }
    }

    /// A number that grows with every change.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// One object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.objects.get(key)
    }

    /// All objects, in the order of their keys.
    pub fn all(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.objects.iter()
    }

    /// All objects of a kind; of one namespace, if it is not empty.
    pub fn list<'a>(&'a self, kind: &str, namespace: &'a str) -> impl Iterator<Item = (&'a Key, &'a Value)> {
        let kind = Kind::named(kind);
        self.objects
            .iter()
            .filter(move |(key, _)| key.kind == kind && (namespace.is_empty() || key.namespace == namespace))
    }

    /// Whether an object of this uid exists.
    #[must_use]
    pub fn alive(&self, uid: &Value) -> Option<&Value> {
        self.objects.values().find(|object| object["metadata"]["uid"] == *uid)
    }

    /// Adds an object. Its status is dropped where that is written apart.
    ///
    /// # Errors
    /// 409 when the name is taken.
    pub fn create(&mut self, key: &Key, mut object: Value) -> Result<Value, Refused> {
        if self.objects.contains_key(key) {
            return Err(Refused::new(409, "AlreadyExists", format!("{} already exists", key.quoted())));
        }
        if key.kind.status {
            object.as_object_mut().unwrap().remove("status");
        }
        self.born += 1;
        object["apiVersion"] = json!(key.kind.api_version());
        object["kind"] = json!(key.kind.kind);
        let meta = &mut object["metadata"];
        meta["name"] = json!(key.name);
        if key.kind.namespaced {
            meta["namespace"] = json!(key.namespace);
        }
        meta["uid"] = json!(format!("00000000-0000-4000-8000-{:012}", self.born));
        meta["creationTimestamp"] = json!(self.clock.stamp());
        meta["generation"] = json!(1);
        match key.kind.kind {
            "Pod" => object["status"] = json!({"phase": "Pending"}),
            "Service" if object["spec"]["clusterIP"].is_null() => {
                object["spec"]["clusterIP"] = json!(self.free_address());
            }
            _ => {}
        }
        Ok(self.put(key, object))
    }

    /// An address that no Service has.
    fn free_address(&self) -> String {
        let taken = |address: &String| {
            self.list("Service", "").any(|(_, service)| service["spec"]["clusterIP"] == json!(address))
        };
        let mut all = (1..=254).map(|last| format!("10.96.7.{last}"));
        all.find(|address| !taken(address)).expect("no address is left")
    }

    fn put(&mut self, key: &Key, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(key.clone(), object.clone());
        object
    }

    /// Changes an object in any way, as its user or a part of the cluster does.
    ///
    /// # Panics
    /// When there is no such object.
    pub fn edit(&mut self, key: &Key, change: impl FnOnce(&mut Value)) -> Value {
        let mut object = self.objects.get(key).unwrap_or_else(|| panic!("no {key:?}")).clone();
        change(&mut object);
        self.replace(key, object)
    }

    /// Puts a changed object in an old one's place. What changed nothing is no change.
    fn replace(&mut self, key: &Key, mut object: Value) -> Value {
        let old = &self.objects[key];
        if *old == object {
            return object;
        }
        if old["spec"] != object["spec"] {
            object["metadata"]["generation"] = json!(old["metadata"]["generation"].as_i64().unwrap() + 1);
        }
        self.put(key, object)
    }

    /// Server-side apply, of the object or its status.
    ///
    /// # Errors
    /// As the API server has them: an object that is not there, another uid, a field that can't be changed.
    pub fn apply(
        &mut self,
        key: &Key,
        manager: &str,
        subresource: &str,
        want: &Value,
    ) -> Result<Value, Refused> {
        let Some(have) = self.objects.get(key) else {
            if !subresource.is_empty() {
                return Err(Refused::not_found(key));
            }
            if let Some(uid) = want["metadata"]["uid"].as_str() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(Refused::conflict(key, &why));
            }
            self.applied.insert((key.clone(), manager.into(), subresource.into()), want.clone());
            return self.create(key, want.clone());
        };
        same_uid(key, have, want)?;
        let slot = (key.clone(), manager.to_owned(), subresource.to_owned());
        let merged = merge::apply(have, self.applied.get(&slot), want);
        let object = within(key.kind, subresource, have, merged);
        immutable(key, have, &object)?;
        self.applied.insert(slot, want.clone());
        Ok(self.replace(key, object))
    }

    /// JSON merge patch or, if it is a list, JSON patch, of the object or its status.
    ///
    /// # Errors
    /// As the API server has them.
    pub fn patch(&mut self, key: &Key, subresource: &str, patch: &Value) -> Result<Value, Refused> {
        let have = self.objects.get(key).ok_or_else(|| Refused::not_found(key))?;
        same_uid(key, have, patch)?;
        let changed = if patch.is_array() {
            merge::replace(have, patch).ok_or_else(|| {
                Refused::invalid(key, "the server rejected our request due to an error in our request")
            })?
        } else {
            merge::merge(have, patch)
        };
        let object = within(key.kind, subresource, have, changed);
        immutable(key, have, &object)?;
        Ok(self.replace(key, object))
    }

    /// Takes an object away at once.
    pub fn remove(&mut self, key: &Key) {
        self.version += 1;
        self.objects.remove(key);
        self.applied.retain(|(other, ..), _| other != key);
    }

    /// Deletes an object as a user does: a pod that runs gets its grace period, a foreground deletion waits for what
    /// the object owns. Says whether it is gone already.
    ///
    /// # Errors
    /// 404, and 409 when a precondition does not hold.
    pub fn delete(&mut self, key: &Key, options: &Value) -> Result<bool, Refused> {
        let object = self.objects.get(key).ok_or_else(|| Refused::not_found(key))?;
        let (wanted, uid) = (&options["preconditions"]["uid"], &object["metadata"]["uid"]);
        if !wanted.is_null() && wanted != uid {
            let why =
                format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}");
            return Err(Refused::conflict(key, &why));
        }
        let foreground = options["propagationPolicy"] == "Foreground";
        let grace = grace_seconds(key.kind, object);
        if grace.is_none() && !foreground && key.kind.kind != "Namespace" {
            self.remove(key);
            return Ok(true);
        }
        if object["metadata"]["deletionTimestamp"].is_null() {
            let seconds = grace.unwrap_or(0);
            let gone = clock::stamp(self.clock.now() + SignedDuration::from_secs(seconds));
            self.edit(key, |object| {
                object["metadata"]["deletionTimestamp"] = json!(gone);
                object["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
                if foreground {
                    object["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
                }
            });
        }
        Ok(false)
    }
}

/// Seconds that a pod gets: none if no node has it or it ended.
fn grace_seconds(kind: &Kind, object: &Value) -> Option<i64> {
    let ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let asked = || object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    (kind.kind == "Pod" && object["spec"]["nodeName"].is_string() && !ended).then(asked)
}

/// A patch of the object leaves the status as it was, where that is written apart; a patch of the status the rest.
fn within(kind: &Kind, subresource: &str, have: &Value, mut merged: Value) -> Value {
    if subresource == "status" {
        let mut object = have.clone();
        object["status"] = merged["status"].take();
        return object;
    }
    if kind.status {
        match have.get("status") {
            Some(status) => merged["status"] = status.clone(),
            None => drop(merged.as_object_mut().unwrap().remove("status")),
        }
    }
    merged
}

fn same_uid(key: &Key, have: &Value, want: &Value) -> Result<(), Refused> {
    match want["metadata"]["uid"].as_str() {
        Some(uid) if have["metadata"]["uid"] != uid => {
            Err(Refused::invalid(key, &format!("metadata.uid: Invalid value: {uid:?}: field is immutable")))
        }
        _ => Ok(()),
    }
}

/// What the API server lets nobody change.
fn immutable(key: &Key, have: &Value, want: &Value) -> Result<(), Refused> {
    let fixed = |field: &str| have[field] == want[field];
    match key.kind.kind {
        "PriorityClass" if !fixed("value") || !fixed("preemptionPolicy") => {
            Err(Refused::invalid(key, "value: Forbidden: may not be changed in an update."))
        }
        "RuntimeClass" if !fixed("handler") => {
            Err(Refused::invalid(key, "handler: Invalid value: field is immutable"))
        }
        "Pod" => {
            let deadline = |pod: &Value| pod["spec"]["activeDeadlineSeconds"].as_i64().unwrap_or(i64::MAX);
            let mut but_deadline = want["spec"].clone();
            but_deadline["activeDeadlineSeconds"] = have["spec"]["activeDeadlineSeconds"].clone();
            if deadline(want) > deadline(have) {
                return Err(Refused::invalid(
                    key,
                    "spec.activeDeadlineSeconds: must be less than or equal to previous value",
                ));
            }
            if but_deadline == have["spec"] {
                return Ok(());
            }
            Err(Refused::invalid(
                key,
                "spec: Forbidden: pod updates may not change fields other than `spec.activeDeadlineSeconds`",
            ))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (Store, Key) {
        let mut store = Store::new(Clock::start());
        let key = Key::new("Pod", "a", "p");
        store.create(&key, json!({"metadata": {}, "spec": {"activeDeadlineSeconds": 10}, "status": {"phase": "Running"}})).unwrap();
        (store, key)
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_what_an_api_server_keeps() {
        let (mut store, key) = store();
        let pod = store.get(&key).unwrap().clone();
        assert_eq!(pod["status"], json!({"phase": "Pending"}), "a status is not created");
        assert_eq!(store.create(&key, json!({"metadata": {}})).unwrap_err().reason, "AlreadyExists");
        let same = store.patch(&key, "", &json!({"spec": {"activeDeadlineSeconds": 10}})).unwrap();
        assert_eq!(same["metadata"], pod["metadata"], "what changes nothing is no new version");
        let lower = store
            .patch(&key, "", &json!({"spec": {"activeDeadlineSeconds": 5}, "status": {"phase": "x"}}))
            .unwrap();
        assert_eq!(
            (&lower["metadata"]["generation"], &lower["status"]["phase"]),
            (&json!(2), &json!("Pending"))
        );
        assert_eq!(
            store.patch(&key, "", &json!({"spec": {"activeDeadlineSeconds": 6}})).unwrap_err().code,
            422
        );
        assert_eq!(store.patch(&key, "", &json!({"metadata": {"uid": "other"}})).unwrap_err().code, 422);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_on_a_node_is_given_its_grace() {
        let (mut store, key) = store();
        let other = json!({"preconditions": {"uid": "other"}});
        assert_eq!(store.delete(&key, &other).unwrap_err().code, 409);
        store.edit(&key, |pod| pod["spec"]["nodeName"] = json!("n"));
        assert_eq!(store.delete(&key, &json!({})), Ok(false));
        assert!(store.get(&key).unwrap()["metadata"]["deletionTimestamp"].is_string());
        store.edit(&key, |pod| pod["status"]["phase"] = json!("Failed"));
        assert_eq!(store.delete(&key, &json!({})), Ok(true));
        assert_eq!(store.delete(&key, &json!({})).unwrap_err().code, 404);
    }

    #[tokio::test(start_paused = true)]
    async fn an_apply_makes_changes_or_refuses() {
        let mut store = Store::new(Clock::start());
        let key = Key::new("NetworkPolicy", "a", "p");
        assert_eq!(store.apply(&key, "m", "", &json!({"metadata": {"uid": "u"}})).unwrap_err().code, 409);
        assert_eq!(store.apply(&key, "m", "status", &json!({"metadata": {}})).unwrap_err().code, 404);
        let made = store.apply(&key, "m", "", &json!({"metadata": {}, "spec": {"a": 1}})).unwrap();
        let next = store.apply(&key, "m", "", &json!({"metadata": {}, "spec": {"b": 1}})).unwrap();
        assert_eq!((&next["spec"], &next["metadata"]["uid"]), (&json!({"b": 1}), &made["metadata"]["uid"]));
    }
}
