package inject

import (
	"fmt"
	"net/url"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/internal/tlsprofile"
)

// FromCluster reads the values from the cluster's configuration objects, all named `cluster`. An object is nil if it does not exist.
// FromCluster fails if the internal address of the API server is not a URL.
func FromCluster(proxy *configv1.Proxy, server *configv1.APIServer, infrastructure *configv1.Infrastructure) (Values, error) {
	var v Values
	if proxy != nil {
		v.Proxy = Proxy{HTTP: proxy.Status.HTTPProxy, HTTPS: proxy.Status.HTTPSProxy, No: proxy.Status.NoProxy}
	}
	if server != nil {
		v.TLS = TLSOf(server.Spec.TLSSecurityProfile)
	}
	if infrastructure != nil && infrastructure.Status.APIServerInternalURL != "" {
		u, err := url.Parse(infrastructure.Status.APIServerInternalURL)
		if err != nil {
			return Values{}, fmt.Errorf("reading status.apiServerInternalURI of Infrastructure %s: %w", infrastructure.Name, err)
		}
		v.APIServer = APIServer{Host: u.Hostname(), Port: u.Port()}
	}
	return v, nil
}

// TLSOf returns the settings of a TLS profile; see tlsprofile.Settings.
func TLSOf(profile *configv1.TLSSecurityProfile) TLS {
	minVersion, suites := tlsprofile.Settings(profile)
	return TLS{MinVersion: minVersion, CipherSuites: suites}
}
