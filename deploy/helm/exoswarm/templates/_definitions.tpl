{{- define "exoswarm.labels" -}}
app.kubernetes.io/name: exoswarm
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "exoswarm.meta" -}}
name: {{ .root.Release.Name }}-{{ .component }}
labels:
  {{- include "exoswarm.labels" . | nindent 2 }}
  app.kubernetes.io/version: {{ .root.Values.image.tag | default .root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{- define "exoswarm.image" -}}
image: {{ printf "%s/%s:%s" .root.Values.image.registry .name (.root.Values.image.tag | default .root.Chart.AppVersion) | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{- end }}

{{/* The servers that clients of the release connect to. */}}
{{- define "exoswarm.natsURL" -}}
{{- if .Values.nats.enabled -}}
{{ ternary "tls" "nats" (not (empty .Values.nats.tlsSecret)) }}://{{ .Release.Name }}-nats:4222
{{- else -}}
{{ .Values.nats.url }}
{{- end -}}
{{- end }}

{{- define "exoswarm.streamReplicas" -}}
{{- .Values.streamReplicas | default (ternary .Values.nats.replicas 1 .Values.nats.enabled) -}}
{{- end }}

{{/* What all pods have: no rights, and a read-only root. */}}
{{- define "exoswarm.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* What all containers have. The last line of the log is the reason of an end. */}}
{{- define "exoswarm.container" -}}
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* A process that waits for its server is alive and not ready. */}}
{{- define "exoswarm.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 3
{{- end }}

{{/* The login of a client, and the certificates of the connection. */}}
{{- define "exoswarm.credentials" -}}
name: auth
projected:
  defaultMode: 0440
  sources:
    - secret: {name: {{ .root.Values.auth.secret | quote }}, items: [{key: {{ .key }}, path: nats.creds}]}
    {{- with .root.Values.nats.tlsSecret }}
    - secret: {name: {{ . | quote }}, items: [{key: ca.crt, path: ca.crt}, {key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]}
    {{- end }}
{{- end }}

{{/* The variables of a client. */}}
{{- define "exoswarm.connection" -}}
- {name: NATS_URL, value: {{ include "exoswarm.natsURL" . | quote }}}
- {name: NATS_CREDS, value: /etc/exoswarm/nats.creds}
{{- if .Values.nats.tlsSecret }}
- {name: NATS_CA, value: /etc/exoswarm/ca.crt}
- {name: NATS_CERT, value: /etc/exoswarm/tls.crt}
- {name: NATS_KEY, value: /etc/exoswarm/tls.key}
{{- end }}
{{- end }}
