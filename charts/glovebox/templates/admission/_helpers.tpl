{{/*
The head of a policy, up to and with its failure policy. Call with (list $ "name").
An expression that errs refuses: only what is understood passes.
*/}}
{{- define "glovebox.admission.policy" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ index . 1 }}
  labels:
    {{- include "glovebox.labels" (list (index . 0) "admission") | nindent 4 }}
spec:
  failurePolicy: Fail
{{- end }}

{{/* The binding of a policy. Call with (list $ "name" action). */}}
{{- define "glovebox.admission.binding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ index . 1 }}
  labels:
    {{- include "glovebox.labels" (list (index . 0) "admission") | nindent 4 }}
spec:
  policyName: {{ index . 1 }}
  validationActions: {{ if eq (index . 2) "Deny" }}[Deny]{{ else }}[Warn, Audit]{{ end }}
{{- end }}

{{/* CEL: whether the request comes from the controller. */}}
{{- define "glovebox.cel.isController" -}}
request.userInfo.username == '{{ include "glovebox.controllerUser" . }}'
{{- end }}

{{/* CEL: whether it comes from what Kubernetes itself tidies up with, in both ways of running its controllers. */}}
{{- define "glovebox.cel.isGarbageCollector" -}}
request.userInfo.username in ['system:serviceaccount:kube-system:generic-garbage-collector', 'system:serviceaccount:kube-system:namespace-controller', 'system:kube-controller-manager']
{{- end }}

{{/* CEL: whether it comes from somebody whom the values exempt. */}}
{{- define "glovebox.cel.isExempt" -}}
request.userInfo.username in {{ .Values.admission.exempt.users | toJson }} || (has(request.userInfo.groups) && request.userInfo.groups.exists(g, g in {{ .Values.admission.exempt.groups | toJson }}))
{{- end }}

{{/* CEL: whether an object (second of the list) carries the label of what the controller made. */}}
{{- define "glovebox.cel.isOwned" -}}
{{- $o := index . 1 -}}
({{ $o }} != null && has({{ $o }}.metadata.labels) && 'app.kubernetes.io/managed-by' in {{ $o }}.metadata.labels && {{ $o }}.metadata.labels['app.kubernetes.io/managed-by'] == 'glovebox')
{{- end }}

{{/* CEL: whether a pod carries any label that only pods of sandboxes carry. */}}
{{- define "glovebox.cel.isSandboxPod" -}}
{{- $o := index . 1 -}}
({{ include "glovebox.cel.isOwned" . }} || ({{ $o }} != null && has({{ $o }}.metadata.labels) && {{ $o }}.metadata.labels.exists(k, k.startsWith('glovebox.dev/'))))
{{- end }}

{{/*
CEL: the labels that the controller gives to the pod of a sandbox, beside glovebox.dev/*, and what they always say. Held
against the controller by glovebox-sandbox-pod-shape.
*/}}
{{- define "glovebox.cel.podLabels" -}}
{'app.kubernetes.io/managed-by': 'glovebox', 'app.kubernetes.io/part-of': 'glovebox', 'app.kubernetes.io/name': 'sandbox', 'app.kubernetes.io/component': 'sandbox'}
{{- end }}

{{/* CEL: whether a label (variable k) may be on such a pod with a value nobody can foretell. The last ones Kubernetes copies from the node. */}}
{{- define "glovebox.cel.isFreePodLabel" -}}
(k.startsWith('glovebox.dev/') || k.startsWith('topology.kubernetes.io/') || k in {{ .Values.admission.extraPodLabels | toJson }})
{{- end }}

{{/*
Variables: what a NetworkPolicy (second of the list, an expression for its spec) selects, as far as sandboxes are concerned.
excluded: it can't select the pod of a sandbox. The labels of such a pod are known, so a selector that requires another
label, or another value, means something else.
*/}}
{{- define "glovebox.cel.selectorVariables" -}}
{{- $spec := index . 1 -}}
{{- $root := index . 0 -}}
- name: labels
  expression: "has({{ $spec }}.podSelector) && has({{ $spec }}.podSelector.matchLabels) ? {{ $spec }}.podSelector.matchLabels : {}"
- name: terms
  expression: "has({{ $spec }}.podSelector) && has({{ $spec }}.podSelector.matchExpressions) ? {{ $spec }}.podSelector.matchExpressions : []"
- name: known
  expression: "{{ include "glovebox.cel.podLabels" $root }}"
- name: excludedByLabels
  expression: >-
    variables.labels.exists(k, k in variables.known ? variables.labels[k] != variables.known[k] : !{{ include "glovebox.cel.isFreePodLabel" $root }})
- name: excludedByTerms
  expression: >-
    variables.terms.exists(t, [t.key].exists(k,
    t.operator == 'DoesNotExist' ? k in variables.known || k in ['glovebox.dev/sandbox', 'glovebox.dev/class'] :
    t.operator == 'NotIn' ? k in variables.known && variables.known[k] in t.values :
    t.operator == 'In' && k in variables.known ? !(variables.known[k] in t.values) :
    !(k in variables.known) && !{{ include "glovebox.cel.isFreePodLabel" $root }}))
- name: excluded
  expression: variables.excludedByLabels || variables.excludedByTerms
{{- end }}

{{/* CEL: whether a NetworkPolicy (an expression for its spec) has any rule, and so allows something. */}}
{{- define "glovebox.cel.allows" -}}
((has({{ . }}.ingress) && {{ . }}.ingress.size() > 0) || (has({{ . }}.egress) && {{ . }}.egress.size() > 0))
{{- end }}
