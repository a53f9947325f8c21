package e2e

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func TestMain(m *testing.M) {
	if os.Getenv("CVO_E2E") != "1" {
		fmt.Println("tests on a real cluster are run by `make e2e`, which needs Docker")
		return
	}
	log.SetLogger(logr.Discard())
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	go func() {
		fmt.Printf("%s: removing clusters and registries\n", <-interrupts)
		if err := interrupted(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(130)
	}()
	os.Exit(m.Run())
}

// step is a test that goes on where the one before it has left the site.
type step struct {
	name string
	test func(*testing.T, *site)
}

// TestPlatform is the life of a platform, from a bare cluster to a bare cluster. It, TestFault and TestNetwork run side
// by side, each on a cluster of its own.
func TestPlatform(t *testing.T) {
	t.Parallel()
	follow(t, newSite(t, siteOptions{suffix: platformSite}), []step{
		{"Install", testInstall},
		{"Cluster", testCluster},
		{"Update", testUpdate},
		{"Uninstall", testUninstall},
	})
}

// TestFault is what production brings in the middle of updates, and one that is brought by a Job.
func TestFault(t *testing.T) {
	t.Parallel()
	follow(t, newSite(t, siteOptions{suffix: faultSite, components: few()}), []step{
		{"Webhook", testFaultWebhook},
		{"Killed", testFaultKilled},
		{"Node", testFaultNode},
		{"JobRetrieval", testJobRetrieval},
	})
}

// TestNetwork is a platform that brings the network of pods, with faults that take no third node, and components that
// misbehave.
func TestNetwork(t *testing.T) {
	t.Parallel()
	follow(t, newSite(t, siteOptions{suffix: networkSite, ownNetwork: true, workers: 1, components: few()}), []step{
		{"Own", testOwnNetwork},
		{"Registry", testFaultRegistry},
		{"Misbehaviour", testMisbehaviour},
		{"Namespace", testFaultNamespace},
		{"Server", testFaultServer},
		{"Failover", testFailover},
	})
}

// few components are enough for a fault: one that is afflicted, one that stays, and what they need.
func few() []string {
	return []string{"example-config", afflicted, "example-network", "example-storage", "machine-config"}
}

func follow(t *testing.T, s *site, steps []step) {
	t.Helper()
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) { step.test(t, s) })
	}
}
