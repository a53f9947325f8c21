package e2e

import (
	"context"
	"flag"
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
		fmt.Println("run tests on a real cluster with `make e2e` (needs Docker)")
		flag.Parse()
		_ = flag.Set("test.skip", ".")
		os.Exit(m.Run())
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

// step is a test that continues with the site in the state that the previous step left.
type step struct {
	name string
	test func(*testing.T, *site)
}

// TestNodes covers the node stage on machines that systemd runs and reboots. It takes longest, so it comes first.
func TestNodes(t *testing.T) {
	t.Parallel()
	follow(t, newSite(t, siteOptions{suffix: nodesSite, workers: 3, ownAddresses: true}), []step{
		{"Reboot", testNodeReboot},
		{"Policies", testNodePolicies},
		{"Drain", testNodeDrain},
		{"Killed", testNodeKilled},
		{"Obstacle", testNodeObstacle},
		{"Rollback", testNodeRollback},
		{"Hook", testNodeHook},
		{"Release", testNodeRelease},
	})
}

// TestPlatform covers the life of a platform from a bare cluster to a bare cluster. All tests run in parallel
// on their own clusters.
func TestPlatform(t *testing.T) {
	t.Parallel()
	follow(t, newSite(t, siteOptions{suffix: platformSite}), []step{
		{"Install", testInstall},
		{"Cluster", testCluster},
		{"Update", testUpdate},
		{"Uninstall", testUninstall},
	})
}

// TestFault covers faults that occur in production during updates, and a release that a Job provides.
func TestFault(t *testing.T) {
	t.Parallel()
	follow(t, newSite(t, siteOptions{suffix: faultSite, components: few()}), []step{
		{"Webhook", testFaultWebhook},
		{"Killed", testFaultKilled},
		{"Node", testFaultNode},
		{"JobRetrieval", testJobRetrieval},
	})
}

// TestNetwork covers a platform with its own pod network, faults that need no third node, and misbehaving components.
func TestNetwork(t *testing.T) {
	t.Parallel()
	follow(t, newSite(t, siteOptions{suffix: networkSite, ownNetwork: true, workers: 1, components: few()}), []step{
		{"Own", testOwnNetwork},
		{"Registry", testFaultRegistry},
		{"Misbehavior", testMisbehavior},
		{"Namespace", testFaultNamespace},
		{"Server", testFaultServer},
		{"Failover", testFailover},
	})
}

// few returns the components that a fault test needs: an afflicted one, an unaffected one, and those that they depend on.
func few() []string {
	return []string{"example-config", changedComponent, "example-network", "example-storage"}
}

func follow(t *testing.T, s *site, steps []step) {
	t.Helper()
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) { step.test(t, s) })
	}
}
