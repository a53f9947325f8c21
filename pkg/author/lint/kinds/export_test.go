package kinds

// Scopes reports, by Kind.group, whether a kind served without a CRD is cluster-scoped.
func Scopes() map[string]bool {
	out := map[string]bool{}
	for gvk, k := range servedKinds().byGVK {
		out[gvk.GroupKind().String()] = k.clusterScoped
	}
	return out
}
