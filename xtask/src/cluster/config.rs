//! The files that the parts read, as text. Pure: renders, writes nothing.

use super::plan::{Node, Plan, SERVICE_DNS, WORLD, WORLD_DNS, WORLD_EVIL, WORLD_OTHER, WORLD_WEB, files};

/// A file of the run folder: its path there, and its text.
pub(crate) type File = (String, String);

/// Every configuration file of the cluster.
pub(crate) fn files(plan: &Plan) -> Vec<File> {
    let mut all = vec![
        ("audit.yaml".to_owned(), AUDIT.to_owned()),
        (files::HOSTS.to_owned(), hosts()),
        ("world.Corefile".to_owned(), world_corefile(plan)),
        ("resolv.conf".to_owned(), format!("nameserver {WORLD_DNS}\n")),
        ("manifests/base.yaml".to_owned(), base(plan)),
    ];
    for user in ["admin", "controller-manager", "scheduler", "proxy", "kube-router"] {
        all.push((format!("{user}.kubeconfig"), kubeconfig(plan, user)));
    }
    for node in plan.nodes() {
        all.push((format!("{node}.kubeconfig"), kubeconfig(plan, &node.to_string())));
        all.push((format!("{node}/kubelet.yaml"), kubelet(plan, node)));
        all.push((format!("{node}/containerd.toml"), containerd(plan, node)));
        all.push((format!("{node}/runsc.toml"), RUNSC.to_owned()));
        all.push((format!("{node}/cni/10-pods.conflist"), cni(node)));
    }
    all
}

/// Who wrote what, at level Metadata. Reads and leases are left out: they would drown the rest.
const AUDIT: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, verbs: [get, list, watch]}
- {level: None, resources: [{group: coordination.k8s.io, resources: [leases]}]}
- {level: Metadata}
";

/// Systrap needs neither KVM nor ptrace rights.
const RUNSC: &str = "[runsc_config]\nplatform = \"systrap\"\n";

const BASE: &str = include_str!("../../cluster/manifests/base.yaml");

fn hosts() -> String {
    // What lies: names that lead to metadata, to private addresses and into the cluster. One of two answers may be good.
    let lies = [
        ("169.254.169.254", "metadata.bad.example mixed-metadata.bad.example"),
        ("10.0.0.7", "private.bad.example mixed.bad.example"),
        ("127.0.0.1", "loopback.bad.example"),
        ("10.244.0.2", "pod.bad.example"),
        ("10.96.0.1", "service.bad.example"),
        ("64:ff9b::a9fe:a9fe", "nat64.bad.example"),
    ];
    let node = Node(0).address();
    let lies = lies.map(|(address, names)| format!("{address} {names}\n")).concat();
    format!(
        "# The names of the pretended internet. Read again within a second after a change.\n\
         {WORLD_WEB} allowed.example web.example tcp.example granted.example api.allowed.example\n\
         {WORLD_WEB} mixed.bad.example mixed-metadata.bad.example\n\
         {WORLD_OTHER} denied.example\n{WORLD_EVIL} evil.example\n{WORLD} gateway.example\n\
         {lies}{node} node.bad.example\n"
    )
}

/// Answers each question and writes down who asked it: what never left is not in the log.
fn world_corefile(plan: &Plan) -> String {
    let hosts = plan.file(files::HOSTS);
    let hosts = hosts.display();
    let aliases: String = [3, 9].map(aliases).concat();
    format!(
        ".:53 {{
    bind {WORLD_DNS}
    log
    template IN A wild.example {{
        match ^[^.]+\\.wild\\.example\\.$
        answer \"{{{{ .Name }}}} 1 IN A {WORLD_WEB}\"
        fallthrough
    }}
{aliases}    hosts {hosts} {{
        ttl 1
        reload 1s
    }}
}}
"
    )
}

/// A name that is an alias of an alias, so many times, all told in one answer.
fn aliases(hops: u8) -> String {
    let name = |hop: u8| match hop {
        0 => format!("hops{hops}.aliases.example."),
        _ => format!("to{hop}.hops{hops}.aliases.example."),
    };
    let step = |hop| format!("        answer \"{} 1 IN CNAME {}\"\n", name(hop), name(hop + 1));
    let chain = (0..hops).map(step).collect::<Vec<_>>().concat();
    format!(
        "    template IN A aliases.example {{
        match ^hops{hops}\\.aliases\\.example\\.$
{chain}        answer \"{} 1 IN A {WORLD_WEB}\"
        fallthrough
    }}
",
        name(hops)
    )
}

fn base(plan: &Plan) -> String {
    // Made beforehand, so that each node's pod range is the one of its CNI configuration.
    let node = |node: Node| {
        let pods = node.pods();
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {node}}}\n\
             spec: {{podCIDR: {pods}, podCIDRs: [{pods}]}}\n"
        )
    };
    BASE.to_owned() + &plan.nodes().map(node).collect::<String>()
}

fn kubeconfig(plan: &Plan, user: &str) -> String {
    let pki = plan.file("pki");
    let (pki, server, name) = (pki.display(), Node(0).address(), plan.name.group());
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: {name}
  cluster: {{server: \"https://{server}:6443\", certificate-authority: \"{pki}/ca.crt\"}}
users:
- name: {user}
  user: {{client-certificate: \"{pki}/{user}.crt\", client-key: \"{pki}/{user}.key\"}}
contexts:
- name: {name}
  context: {{cluster: {name}, user: {user}}}
current-context: {name}
"
    )
}

fn kubelet(plan: &Plan, node: Node) -> String {
    let pki = plan.file("pki");
    let (pki, group) = (pki.display(), plan.node_group(node));
    let plugins = plan.node_file(node, "volume-plugins");
    let plugins = plugins.display();
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: \"{pki}/ca.crt\"}}
authorization: {{mode: Webhook}}
tlsCertFile: \"{pki}/{node}-serving.crt\"
tlsPrivateKeyFile: \"{pki}/{node}-serving.key\"
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /{group}
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
clusterDNS: [{SERVICE_DNS}]
clusterDomain: cluster.local
resolvConf: /etc/resolv.conf
volumePluginDir: \"{plugins}\"
maxPods: 250
podPidsLimit: 1024
serializeImagePulls: false
containerLogMaxSize: 10Mi
containerLogMaxFiles: 3
imageGCHighThresholdPercent: 100
# No eviction for the machine's sake: its disk is shared with everything else on it. Limits of a pod's own
# ephemeral storage still evict that pod.
evictionHard: {{}}
localStorageCapacityIsolation: true
nodeLeaseDurationSeconds: 8
# Looks often whether anything changed, writes when it did.
nodeStatusUpdateFrequency: 2s
nodeStatusReportFrequency: 5m
"
    )
}

fn containerd(plan: &Plan, node: Node) -> String {
    let folder = plan.node_file(node, "");
    let folder = folder.display().to_string();
    let folder = folder.trim_end_matches('/');
    let bin = plan.file("bin");
    let gvisor = |handler: &str| {
        format!(
            "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.{handler}]
runtime_type = \"io.containerd.runsc.v1\"
[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.{handler}.options]
TypeUrl = \"io.containerd.runsc.v1.options\"
ConfigPath = \"{folder}/runsc.toml\"
"
        )
    };
    // The second handler has Kata's name and gVisor behind it: the whole path of a VM class but the VM.
    let (runsc, kata) = (gvisor("runsc"), gvisor("kata-clh-runtime-rs"));
    format!(
        "version = 3
root = \"{folder}/containerd\"
state = \"/run/containerd\"
temp = \"{folder}/tmp\"
disabled_plugins = [\"io.containerd.internal.v1.opt\"]
[grpc]
address = \"/run/containerd/containerd.sock\"
[plugins.\"io.containerd.cri.v1.images\".pinned_images]
sandbox = \"glovebox.dev/pause:1\"
[plugins.\"io.containerd.cri.v1.runtime\"]
# Scores cannot be lowered where CAP_SYS_RESOURCE is withheld.
restrict_oom_score_adj = true
[plugins.\"io.containerd.cri.v1.runtime\".cni]
bin_dirs = [\"{bin}\"]
conf_dir = \"{folder}/cni\"
[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc]
runtime_type = \"io.containerd.runc.v2\"
{runsc}{kata}",
        bin = bin.display()
    )
}

/// Point-to-point cables, not a bridge: what crosses a bridge passes below the policy rules. No masquerading: the
/// world routes back to pods, so what it sees is the pod's own address.
fn cni(node: Node) -> String {
    let ipam = serde_json::json!({
        "type": "host-local",
        "ranges": [[{"subnet": node.pods()}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    });
    let plugins = serde_json::json!([
        {"type": "ptp", "ipMasq": false, "ipam": ipam},
        {"type": "portmap", "capabilities": {"portMappings": true}},
    ]);
    serde_json::json!({"cniVersion": "1.0.0", "name": "pods", "plugins": plugins}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> String {
        let found = files(&Plan::sample(2)).into_iter().find(|(name, _)| name == path);
        found.unwrap_or_else(|| panic!("no {path}")).1
    }

    #[test]
    fn a_kubelet_is_told_its_own_cgroup_and_certificate() {
        let text = file("node1/kubelet.yaml");
        assert!(text.contains("cgroupRoot: /glovebox-t/node1\n"));
        assert!(text.contains("tlsCertFile: \"/tmp/glovebox-t/pki/node1-serving.crt\"\n"));
    }

    #[test]
    fn containerd_knows_the_three_handlers() {
        let text = file("node0/containerd.toml");
        for handler in ["runc", "runsc", "kata-clh-runtime-rs"] {
            assert!(text.contains(&format!("containerd.runtimes.{handler}]\n")), "{handler}");
        }
        assert!(text.contains("root = \"/tmp/glovebox-t/node0/containerd\"\n"));
    }

    #[test]
    fn pod_ranges_agree_between_cni_and_node_objects() {
        let cni: serde_json::Value = serde_json::from_str(&file("node1/cni/10-pods.conflist")).unwrap();
        assert_eq!(cni["plugins"][0]["ipam"]["ranges"][0][0]["subnet"], "10.244.1.0/24");
        assert!(
            file("manifests/base.yaml").contains("metadata: {name: node1}\nspec: {podCIDR: 10.244.1.0/24,")
        );
    }

    #[test]
    fn the_world_writes_down_what_it_is_asked_and_knows_a_chain_of_nine_aliases() {
        let text = file("world.Corefile");
        assert!(text.contains("\n    log\n"));
        assert!(text.contains("match ^[^.]+\\.wild\\.example\\.$\n"), "{text}");
        assert!(text.contains("answer \"{{ .Name }} 1 IN A 203.0.113.7\"\n"), "{text}");
        assert_eq!(text.matches("hops9.aliases.example. 1 IN CNAME").count(), 9, "{text}");
        assert!(text.contains("answer \"to9.hops9.aliases.example. 1 IN A 203.0.113.7\"\n"), "{text}");
    }

    #[test]
    fn every_kubeconfig_that_a_part_is_given_is_rendered() {
        let rendered: Vec<_> =
            files(&Plan::sample(2)).into_iter().map(|(name, _)| format!("/tmp/glovebox-t/{name}")).collect();
        for launch in super::super::parts::launches(&Plan::sample(2)) {
            for flag in launch.argv.iter().filter_map(|word| word.strip_prefix("--kubeconfig=")) {
                assert!(rendered.contains(&flag.to_owned()), "{}: {flag}", launch.id);
            }
        }
    }
}
