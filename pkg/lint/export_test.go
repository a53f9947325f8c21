package lint

// Scopes tells of every kind that is served without a CRD whether it has no namespace, by Kind.group.
func Scopes() map[string]bool {
	out := map[string]bool{}
	for gvk, k := range servedKinds().byGVK {
		out[gvk.GroupKind().String()] = k.clusterScoped
	}
	return out
}

// NewestKubernetes is the version that is taken where a release does not say.
func NewestKubernetes() string { return newestKubernetes.String() }
