//! The examples, and the chart's own classes: each is what the API accepts, and is planned.

use std::sync::Arc;

use glovebox::{
    api::{self, AgentSandbox, SandboxClass},
    policy::ClusterRanges,
    sandbox::{
        World, plan,
        world::{PodSlot, Settings},
    },
};
use serde_json::{Value, json};

use crate::{documents, file, is_yaml, names, schema};

/// Every object of every example, with the file's name.
fn examples() -> Vec<(String, Value)> {
    let files: Vec<String> = names("examples").into_iter().filter(|name| is_yaml(name)).collect();
    assert!(files.len() >= 3, "examples/ holds {files:?}");
    files
        .into_iter()
        .flat_map(|name| {
            documents(&name, &file(&format!("examples/{name}")))
                .into_iter()
                .map(move |object| (name.clone(), object))
        })
        .collect()
}

/// The chart's classes, with the values of a file laid over the defaults.
fn classes(overlay: Option<&str>) -> Vec<SandboxClass> {
    let mut values = documents("values.yaml", &file("charts/glovebox/values.yaml")).remove(0);
    if let Some(overlay) = overlay {
        lay(&mut values, &documents(overlay, &file(&format!("charts/glovebox/{overlay}"))).remove(0));
    }
    let classes = values["classes"].as_object().unwrap().clone();
    assert!(classes.len() >= 4, "{classes:?}");
    let enabled = classes.into_iter().filter(|(_, class)| class["enabled"] == true);
    enabled
        .map(|(name, class)| serde_json::from_value(object("SandboxClass", &name, &class["spec"])).unwrap())
        .collect()
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "glovebox.dev/v1alpha1", "kind": kind, "metadata": {"name": name, "uid": "u", "namespace": "default"}, "spec": spec})
}

/// As Helm merges values.
fn lay(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            over.iter().for_each(|(key, value)| lay(under.entry(key).or_insert(Value::Null), value));
        }
        (under, over) => *under = over.clone(),
    }
}

#[track_caller]
fn accepted(name: &str, object: &Value) {
    let kind = object["kind"].as_str().unwrap();
    let definition = api::crds()
        .into_iter()
        .find(|definition| definition.spec.names.kind == kind)
        .unwrap_or_else(|| panic!("{name}: {kind}"));
    assert_eq!(schema::misfits("", &schema::of(&definition), object), Vec::<String>::new(), "{name}");
}

fn ours(object: &Value) -> bool {
    object["apiVersion"] == "glovebox.dev/v1alpha1"
}

#[test]
fn each_fits_the_definitions() {
    for (name, object) in examples().iter().filter(|(_, object)| ours(object)) {
        accepted(name, object);
    }
}

/// What else an example brings is just what its sandboxes refer to.
#[test]
fn nothing_but_what_is_referred_to() {
    for (name, object) in examples().iter().filter(|(_, object)| !ours(object)) {
        let referred = ["ConfigMap", "Secret"].map(Value::from).contains(&object["kind"]);
        assert!(object["apiVersion"] == "v1" && referred, "{name}: {}", object["kind"]);
        let wanted = object["metadata"]["name"].as_str().unwrap();
        assert!(
            file(&format!("examples/{name}")).matches(wanted).count() >= 2,
            "{name}: nobody refers to {wanted}"
        );
    }
}

#[test]
fn the_charts_classes_fit_the_definitions() {
    for overlay in [None, Some("values-no-kvm.yaml")] {
        for class in classes(overlay) {
            let value = serde_json::to_value(&class).unwrap();
            accepted("values.yaml", &value);
            let runtime = &class.spec.runtime;
            let weaker = runtime.isolation < class.spec.trust.least_isolation();
            assert!(
                !weaker || runtime.accept_weaker_isolation.is_some(),
                "{:?} in {overlay:?} is weaker than its trust allows",
                class.metadata.name
            );
        }
    }
}

fn judge(class: &SandboxClass, sandbox: &Value) -> Result<(), String> {
    let policies = examples().into_iter().filter(|(_, object)| object["kind"] == "EgressPolicy");
    let mut sandbox = sandbox.clone();
    sandbox["metadata"]["uid"] = json!("u");
    sandbox["metadata"]["namespace"] = json!("default");
    let sandbox: AgentSandbox = serde_json::from_value(sandbox).map_err(|error| error.to_string())?;
    let world = World {
        sandbox: Arc::new(sandbox),
        class: Ok(Arc::new(class.clone())),
        namespace_labels: None,
        runtime_class: None,
        nodes: Vec::new(),
        pod: PodSlot::Free,
        fence: None,
        cidr_policy: None,
        credential_grant: (None, None),
        egress_policies: policies
            .map(|(_, object)| Arc::new(serde_json::from_value(object).unwrap()))
            .collect(),
        quota: None,
        priority_class: None,
        unresolved: None,
        breach: None,
        gateway: Some("10.96.0.53".parse().unwrap()),
        authority: None,
        call_keys: Arc::default(),
        named: glovebox::sandbox::named::View::None,
        last_use: None,
        seen: None,
        approvals: Vec::new(),
        wanted: Vec::new(),
        cluster: ClusterRanges::default(),
        settings: Arc::new(Settings {
            agent_image: "glovebox.dev/glovebox:1".into(),
            namespace: "glovebox-system".into(),
            api_server: None,
            gateway_account: Some("glovebox-gateway".into()),
        }),
    };
    plan(&world).map(|_| ()).map_err(|refusal| refusal.message)
}

/// Each example runs as it stands, on the chart's default class, with and without KVM.
#[test]
fn each_is_planned() {
    let own: Vec<SandboxClass> = examples()
        .into_iter()
        .filter(|(_, object)| object["kind"] == "SandboxClass")
        .map(|(_, mut object)| {
            object["metadata"]["uid"] = json!("u");
            serde_json::from_value(object).unwrap()
        })
        .collect();
    let mut planned = 0;
    for overlay in [None, Some("values-no-kvm.yaml")] {
        let classes: Vec<SandboxClass> = classes(overlay).into_iter().chain(own.clone()).collect();
        for (name, sandbox) in examples().into_iter().filter(|(_, object)| object["kind"] == "AgentSandbox") {
            let wanted = sandbox["spec"]["className"].as_str().unwrap_or("untrusted");
            let class = classes
                .iter()
                .find(|class| class.metadata.name.as_deref() == Some(wanted))
                .unwrap_or_else(|| panic!("{name}: no class {wanted}"));
            assert_eq!(judge(class, &sandbox), Ok(()), "{name} on {wanted}, {overlay:?}");
            planned += 1;
        }
    }
    assert!(planned >= 6, "only {planned} were planned");
    // A sandbox that asks for nothing fits every class of the chart.
    for overlay in [None, Some("values-no-kvm.yaml")] {
        for class in classes(overlay) {
            assert_eq!(
                judge(&class, &object("AgentSandbox", "s", &json!({"image": "glovebox.dev/tools:1"}))),
                Ok(()),
                "{:?}",
                class.metadata.name
            );
        }
    }
}

/// Each says at its top what will come of it, for the tests that apply it.
#[test]
fn each_says_what_to_expect() {
    for name in names("examples").into_iter().filter(|name| is_yaml(name)) {
        let text = file(&format!("examples/{name}"));
        let expected = text
            .lines()
            .find_map(|line| line.strip_prefix("# expect: "))
            .unwrap_or_else(|| panic!("{name} has no line `# expect: ...`"));
        assert!(
            matches!(expected, "Running" | "Succeeded" | "Failed" | "Expired" | "class"),
            "{name}: {expected}"
        );
    }
}
