{{- /* The release that the operator runs, which updates have changed since; before there is one, the one to install. */ -}}
{{- define "cvo.releaseImage" -}}
{{- $image := .Values.releaseImage -}}
{{- with lookup "apps/v1" "Deployment" "openshift-cluster-version" "cluster-version-operator" -}}
{{- $image = (first .spec.template.spec.containers).image -}}
{{- end -}}
{{- $image -}}
{{- end -}}
