package operator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"

	"github.com/google/go-containerregistry/pkg/authn"
	configv1 "github.com/openshift/api/config/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"golang.org/x/net/http/httpproxy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/registry"
)

// egress is how the outside is reached from a cluster: what the process was told, and what the cluster's configuration
// adds.
type egress struct {
	access registry.Options
	// client reaches signature stores.
	client *http.Client
}

// readEgress reads the cluster's configuration: its proxy, the certificates that it trusts, its pull secret and its
// mirrors. What the cluster does not have adds nothing. What the process was told by flags comes first.
func readEgress(ctx context.Context, reader client.Reader, told registry.Options) (egress, error) {
	e := egress{access: told}
	proxy, err := configuration(ctx, reader, &configv1.Proxy{})
	if err != nil {
		return e, err
	}
	for _, part := range []func(context.Context, client.Reader, *configv1.Proxy) error{e.proxy, e.authorities, e.pullSecret, e.mirrors} {
		if err := part(ctx, reader, proxy); err != nil {
			return e, err
		}
	}
	e.client = told.Client(e.access)
	return e, nil
}
