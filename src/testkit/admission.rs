//! What the built-in admission plugins do to a pod and to what is created in a namespace: `NamespaceLifecycle`,
//! RuntimeClass, Priority, ResourceQuota. Messages are worded as theirs, since the controller reads some.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::store::{Key, Refused, Store};
use crate::api::Quantity;

/// What a quota counts, in thousandths.
pub type Usage = BTreeMap<String, u64>;

/// Judges and completes an object that is to be created.
///
/// # Errors
/// 404 without the namespace, 403 of the plugin that refuses.
pub fn admit(store: &mut Store, key: &Key, object: &mut Value) -> Result<(), Refused> {
    if key.kind.namespaced {
        let namespace = Key::new("Namespace", "", &key.namespace);
        let found = store.get(&namespace).ok_or_else(|| Refused::not_found(&namespace))?;
        if found["metadata"]["deletionTimestamp"].is_string() {
            let why = format!(
                "unable to create new content in namespace {} because it is being terminated",
                key.namespace
            );
            return Err(Refused::forbidden(key, &why));
        }
    }
    if key.kind.kind == "Pod" {
        runtime_class(store, key, object)?;
        priority(store, key, object)?;
        quota(store, key, object)?;
    }
    Ok(())
}

fn runtime_class(store: &Store, key: &Key, pod: &mut Value) -> Result<(), Refused> {
    let Some(name) = pod["spec"]["runtimeClassName"].as_str() else { return Ok(()) };
    let Some(found) = store.get(&Key::new("RuntimeClass", "", name)) else {
        return Err(Refused::forbidden(key, &format!("pod rejected: RuntimeClass {name:?} not found")));
    };
    let (fixed, nodes) = (found["overhead"]["podFixed"].clone(), found["scheduling"]["nodeSelector"].clone());
    if pod["spec"].get("overhead").is_some_and(|set| *set != fixed) {
        return Err(Refused::forbidden(
            key,
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ));
    }
    if fixed.is_object() {
        pod["spec"]["overhead"] = fixed;
    }
    for (label, value) in nodes.as_object().into_iter().flatten() {
        pod["spec"]["nodeSelector"][label] = value.clone();
    }
    Ok(())
}

fn priority(store: &Store, key: &Key, pod: &mut Value) -> Result<(), Refused> {
    let Some(name) = pod["spec"]["priorityClassName"].as_str() else { return Ok(()) };
    let Some(found) = store.get(&Key::new("PriorityClass", "", name)) else {
        return Err(Refused::forbidden(key, &format!("no PriorityClass with name {name} was found")));
    };
    pod["spec"]["priority"] = found["value"].clone();
    pod["spec"]["preemptionPolicy"] = found["preemptionPolicy"].clone();
    Ok(())
}

fn quota(store: &mut Store, key: &Key, pod: &Value) -> Result<(), Refused> {
    let need = usage(pod);
    let scoped: Vec<Key> = store
        .list("ResourceQuota", &key.namespace)
        .filter(|(_, quota)| selects(quota, pod))
        .map(|(key, _)| key.clone())
        .collect();
    for quota in &scoped {
        let object = store.get(quota).unwrap();
        let hard = read(&object["status"]["hard"]);
        if hard.is_empty() {
            let resources: Vec<&str> = need.keys().map(String::as_str).collect();
            return Err(Refused::forbidden(
                key,
                &format!("status unknown for quota: {}, resources: {}", quota.name, resources.join(",")),
            ));
        }
        let used = read(&object["status"]["used"]);
        let over: Vec<&String> = need
            .keys()
            .filter(|name| {
                hard.get(*name).is_some_and(|most| used.get(*name).unwrap_or(&0) + need[*name] > *most)
            })
            .collect();
        if !over.is_empty() {
            let show = |usage: &Usage| {
                over.iter()
                    .map(|name| format!("{name}={}", text(name, usage.get(*name).copied().unwrap_or(0))))
                    .collect::<Vec<_>>()
                    .join(",")
            };
            let why = format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                quota.name,
                show(&need),
                show(&used),
                show(&hard)
            );
            return Err(Refused::forbidden(key, &why));
        }
    }
    for quota in scoped {
        store.edit(&quota, |quota| {
            let mut used = read(&quota["status"]["used"]);
            for (name, amount) in
                read(&quota["status"]["hard"]).keys().filter_map(|name| Some((name.clone(), need.get(name)?)))
            {
                *used.entry(name).or_default() += amount;
            }
            quota["status"]["used"] = write(&used);
        });
    }
    Ok(())
}

/// Whether a quota counts a pod: by its priority class, the one scope that is used here.
#[must_use]
pub fn selects(quota: &Value, pod: &Value) -> bool {
    quota["spec"]["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten().all(|rule| {
        rule["scopeName"] == "PriorityClass"
            && rule["values"]
                .as_array()
                .is_some_and(|values| values.contains(&pod["spec"]["priorityClassName"]))
    })
}

/// What a pod costs: the greater of its containers' sum and its init container, and the runtime's overhead.
#[must_use]
pub fn usage(pod: &Value) -> Usage {
    let spec = &pod["spec"];
    let of = |container: &Value, what: &str| milli(&container["resources"]["limits"][what]);
    let each = |field: &str| spec[field].as_array().cloned().unwrap_or_default();
    let mut usage = Usage::from([("pods".to_owned(), 1000)]);
    for what in ["cpu", "memory"] {
        let work: u64 = each("containers").iter().map(|container| of(container, what)).sum();
        let init = each("initContainers").iter().map(|container| of(container, what)).max().unwrap_or(0);
        usage.insert(format!("limits.{what}"), work.max(init) + milli(&spec["overhead"][what]));
    }
    usage
}

/// What a quota's map of quantities says.
#[must_use]
pub fn read(amounts: &Value) -> Usage {
    amounts.as_object().into_iter().flatten().map(|(name, amount)| (name.clone(), milli(amount))).collect()
}

/// The map of quantities that says it.
#[must_use]
pub fn write(usage: &Usage) -> Value {
    usage.iter().map(|(name, amount)| (name.clone(), json!(text(name, *amount)))).collect()
}

fn milli(amount: &Value) -> u64 {
    amount.as_str().map_or(0, |text| Quantity::new(text).milli().unwrap())
}

fn text(name: &str, amount: u64) -> String {
    if name.contains("memory") {
        Quantity::from_bytes(amount / 1000).to_string()
    } else {
        Quantity::from_milli(amount).to_string()
    }
}
