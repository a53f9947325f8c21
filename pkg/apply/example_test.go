package apply_test

import (
	"context"
	"fmt"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// applyAll applies the manifests in a text to the cluster of a config.
func applyAll(ctx context.Context, config *rest.Config, text []byte) error {
	manifests, err := manifest.Parse("web.yaml", text, manifest.Limits{})
	if err != nil {
		return err
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	connection, err := request.Connect(config, httpClient)
	if err != nil {
		return err
	}
	served, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return err
	}
	applier := apply.New(connection, kinds.NewMapper(clock.RealClock{}, served, manifests), body.Owner{})
	for _, m := range manifests {
		change, err := applier.Apply(ctx, m, release.Reconciling)
		if err != nil {
			return err
		}
		fmt.Println(m.ID(), change.Action)
	}
	return nil
}

func ExampleApplier_Apply() {
	config, err := rest.InClusterConfig()
	if err == nil {
		err = applyAll(context.Background(), config, []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: shop}, data: {a: x}}"))
	}
	fmt.Println(err)
}
