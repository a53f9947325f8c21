package apiserver

import "k8s.io/client-go/rest"

// Unlimited returns a copy of a configuration without the client-side limit of requests, because the server's API Priority and Fairness limits
// them. Each program uses it once, where it finds the cluster.
func Unlimited(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	return cfg
}
