//! The kinds that the controller meets, and what a request's path means.

/// One kind of object.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// API group; empty for the core.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Plural, as in paths and RBAC rules.
    pub plural: &'static str,
    /// Name.
    pub kind: &'static str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether `status` is written apart from the rest.
    pub status: bool,
}

const fn kind(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
    status: bool,
) -> Kind {
    Kind { group, version, plural, kind, namespaced, status }
}

/// Every kind that is served.
pub static KINDS: &[Kind] = &[
    kind("", "v1", "configmaps", "ConfigMap", true, false),
    kind("", "v1", "namespaces", "Namespace", false, true),
    kind("", "v1", "nodes", "Node", false, true),
    kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true, true),
    kind("", "v1", "pods", "Pod", true, true),
    kind("", "v1", "resourcequotas", "ResourceQuota", true, true),
    kind("", "v1", "services", "Service", true, true),
    kind("events.k8s.io", "v1", "events", "Event", true, false),
    kind("glovebox.dev", "v1alpha1", "agentsandboxes", "AgentSandbox", true, true),
    kind("glovebox.dev", "v1alpha1", "egressapprovals", "EgressApproval", true, true),
    kind("glovebox.dev", "v1alpha1", "egresspolicies", "EgressPolicy", true, false),
    kind("glovebox.dev", "v1alpha1", "sandboxclasses", "SandboxClass", false, true),
    kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true, false),
    kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", true, false),
    kind("rbac.authorization.k8s.io", "v1", "roles", "Role", true, false),
    kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", false, false),
    kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", false, false),
];

impl Kind {
    /// The kind of this name.
    #[must_use]
    pub fn named(name: &str) -> &'static Self {
        KINDS.iter().find(|kind| kind.kind == name).unwrap_or_else(|| panic!("{name} is not served"))
    }

    /// `v1`, or `group/version`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Plural and group, as error messages name a kind.
    #[must_use]
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }
}

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Kind.
    pub kind: &'static Kind,
    /// Namespace; empty for all and for what lives in none.
    pub namespace: String,
    /// Name; empty for a collection.
    pub name: String,
    /// Subresource; empty for the object.
    pub subresource: String,
}

impl Target {
    /// Reads a path such as `/apis/glovebox.dev/v1alpha1/namespaces/a/agentsandboxes/b/status`.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, plural, rest @ ..] if *plural != "status" => {
                (*namespace, [&[*plural], rest].concat())
            }
            rest => ("", rest.to_vec()),
        };
        let (plural, name, subresource) = match rest.as_slice() {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource] => (*plural, *name, *subresource),
            _ => return None,
        };
        let kind =
            KINDS.iter().find(|kind| (kind.group, kind.version, kind.plural) == (group, version, plural))?;
        Some(Self { kind, namespace: namespace.into(), name: name.into(), subresource: subresource.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_paths() {
        let target =
            Target::parse("/apis/glovebox.dev/v1alpha1/namespaces/a/agentsandboxes/b/status").unwrap();
        let said = (target.kind.kind, &*target.namespace, &*target.name, &*target.subresource);
        assert_eq!(said, ("AgentSandbox", "a", "b", "status"));
        assert_eq!(Target::parse("/api/v1/namespaces/a").unwrap().name, "a");
        assert_eq!(Target::parse("/api/v1/pods").unwrap().kind.kind, "Pod");
        assert_eq!(Target::parse("/api/v1/secrets"), None);
    }
}
