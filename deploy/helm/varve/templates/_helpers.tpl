{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "varve.selector" -}}
app.kubernetes.io/name: varve
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "varve.labels" -}}
app.kubernetes.io/name: varve
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
