{{/*
Names. One Glovebox serves a whole cluster (its classes and admission policies are cluster-wide), so every object has a
fixed name, whatever the release is called; a second release is refused by Helm as the owner differs.
*/}}
{{- define "glovebox.controllerName" -}}glovebox-controller{{- end }}
{{- define "glovebox.gatewayName" -}}glovebox-gateway{{- end }}
{{- define "glovebox.sessionName" -}}glovebox-session{{- end }}
{{- define "glovebox.auditName" -}}glovebox-audit{{- end }}
{{- define "glovebox.cleanupName" -}}glovebox-cleanup{{- end }}
{{- define "glovebox.crdsName" -}}glovebox-crds{{- end }}

{{/* The user names that the API server sees. */}}
{{- define "glovebox.controllerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "glovebox.controllerName" . }}
{{- end }}
{{- define "glovebox.cleanupUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "glovebox.cleanupName" . }}
{{- end }}

{{/* Labels of every object of the chart. Call with (list $ "component"). */}}
{{- define "glovebox.labels" -}}
{{- $root := index . 0 -}}
{{ include "glovebox.selectorLabels" . }}
app.kubernetes.io/part-of: glovebox
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name ($root.Chart.Version | replace "+" "_") }}
{{- end }}

{{- define "glovebox.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: glovebox
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* The image of controller and hooks, by digest where one is given. */}}
{{- define "glovebox.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The image that brings glovebox-agent into each sandbox. */}}
{{- define "glovebox.agentImage" -}}
{{- .Values.agentImage | default (include "glovebox.image" .) -}}
{{- end }}

{{/* The name of the default class, or nothing. A class of this chart must be enabled to be it. */}}
{{- define "glovebox.defaultClass" -}}
{{- $name := .Values.defaultClass | default "" -}}
{{- if and $name (hasKey .Values.classes $name) -}}
{{- if not (index .Values.classes $name).enabled -}}
{{- fail (printf "defaultClass: %q is disabled by classes.%s.enabled; enable it, name another class, or set defaultClass to \"\" so that every sandbox must name its class" $name $name) -}}
{{- end -}}
{{- end -}}
{{- $name -}}
{{- end }}

{{/* The Secret with the authority of the gateway: the user's own, or one that the chart makes. */}}
{{- define "glovebox.caName" -}}
{{- .Values.gateway.ca.existingSecret | default (printf "%s-ca" (include "glovebox.gatewayName" .)) -}}
{{- end }}

{{/* The Secret with the key that calls are signed with. */}}
{{- define "glovebox.callsName" -}}
{{- .Values.session.signingKey.existingSecret | default (printf "%s-signing" (include "glovebox.sessionName" .)) -}}
{{- end }}

{{/* The Secret with the session's own certificate. */}}
{{- define "glovebox.sessionTLSName" -}}
{{- .Values.session.tls.existingSecret | default (printf "%s-tls" (include "glovebox.sessionName" .)) -}}
{{- end }}

{{/* The Secret with the key that checkpoints of the trail are signed with. */}}
{{- define "glovebox.trailKeyName" -}}
{{- .Values.audit.signingKey.existingSecret | default (printf "%s-signing" (include "glovebox.auditName" .)) -}}
{{- end }}

{{/* How a role that records finds the trail. */}}
{{- define "glovebox.recordArgs" -}}
{{- if .Values.audit.enabled }}
- --audit={{ include "glovebox.auditName" . }}.{{ .Release.Namespace }}.svc:443
- --audit-ca=/etc/glovebox/audit/ca.crt
- --audit-token=/etc/glovebox/audit/token
{{- if .Values.audit.failClosed }}
- --audit-fail-closed
{{- end }}
{{- end }}
{{- end }}

{{- define "glovebox.recordMounts" -}}
{{- if .Values.audit.enabled }}
- {name: audit, mountPath: /etc/glovebox/audit, readOnly: true}
{{- end }}
{{- end }}

{{/* Whom to trust for the trail, and a token that is good there alone. */}}
{{- define "glovebox.recordVolumes" -}}
{{- if .Values.audit.enabled }}
- name: audit
  projected:
    sources:
      - configMap:
          name: {{ include "glovebox.auditName" . }}-ca
          items:
            - {key: ca.crt, path: ca.crt}
      - serviceAccountToken:
          audience: glovebox-audit
          expirationSeconds: 3600
          path: token
{{- end }}
{{- end }}

{{/* A rule of a NetworkPolicy: the trail. */}}
{{- define "glovebox.recordEgress" -}}
{{- if .Values.audit.enabled }}
# The audit trail.
- ports:
    - {port: 8445, protocol: TCP}
  to:
    - podSelector:
        matchLabels:
          {{- include "glovebox.selectorLabels" (list . "audit") | nindent 10 }}
{{- end }}
{{- end }}

{{/* What every container of the chart may do: nothing but compute and talk. */}}
{{- define "glovebox.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
privileged: false
readOnlyRootFilesystem: true
{{- end }}

{{- define "glovebox.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* The pod of a hook. Call with dict root, name (its ServiceAccount), args. */}}
{{- define "glovebox.hookPod" -}}
{{- $root := .root -}}
serviceAccountName: {{ .name }}
automountServiceAccountToken: true
enableServiceLinks: false
restartPolicy: Never
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.controller.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.controller.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "glovebox.podSecurity" $root | nindent 2 }}
containers:
  - name: {{ trimPrefix "glovebox-" .name }}
    image: {{ include "glovebox.image" $root | quote }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args:
      {{- range .args }}
      - {{ . | quote }}
      {{- end }}
    env:
      - name: POD_NAMESPACE
        valueFrom:
          fieldRef:
            fieldPath: metadata.namespace
      - name: GLOVEBOX_LOG
        value: {{ $root.Values.controller.logFilter | quote }}
    resources:
      requests: {cpu: 50m, memory: 64Mi}
      limits: {cpu: 500m, memory: 64Mi}
    terminationMessagePolicy: FallbackToLogsOnError
    securityContext:
      {{- include "glovebox.containerSecurity" $root | nindent 6 }}
{{- end }}
