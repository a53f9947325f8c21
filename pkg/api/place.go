package api

// PlaceFlags returns the flags, each after a space, that select the operator in a namespace and its ClusterVersion in a command for the
// user. It returns none for the defaults. An empty value counts as the default.
func PlaceFlags(namespace, name string) string {
	flags := ""
	if namespace != "" && namespace != OperatorNamespace {
		flags += " --namespace " + namespace
	}
	if name != "" && name != ClusterVersionName {
		flags += " --name " + name
	}
	return flags
}
