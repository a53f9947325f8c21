package property

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/test/env"
)

var (
	seeds = flag.Int("property.seeds", 60, "number of seeds")
	// without hides a known failure. The named paths are omitted from all histories, which changes the histories of the seeds.
	without = flag.String("property.without", "", "comma-separated parts of paths, such as spec.strategy, that no writer sets; create-only is possible too")
	shorten = flag.Bool("property.shrink", true, "search for a shorter history of a failing seed")
	first   = flag.Uint64("property.first", 1, "first seed")
)

// kubeconfigEnv is the environment variable with the kubeconfig of an existing control plane. Mutated copies of the engine use the control
// plane of the test that builds them.
const kubeconfigEnv = "CVO_PROPERTY_KUBECONFIG"

// server is the API server that all runs share.
var server struct {
	config     *rest.Config
	kubeconfig string
	others     client.Client
}

func TestMain(m *testing.M) {
	flag.Parse()
	// Histories wait for the API server most of the time, and even longer under faults.
	env.SetParallel(12)
	if file := os.Getenv(kubeconfigEnv); file != "" {
		config, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			panic(err)
		}
		config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
		server.config, server.kubeconfig = config, file
		os.Exit(m.Run())
	}
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) {
		server.config, server.kubeconfig = e.Config("property"), e.Kubeconfig
		server.config.WarningHandler = rest.NoWarnings{}
	})
}

// prepare creates the CRD of the custom resource that all runs share.
func prepare(t *testing.T) {
	t.Helper()
	if server.others != nil {
		return
	}
	if testing.Short() && server.config == nil {
		t.Skip("this test needs a control plane")
	}
	others, err := client.New(server.config, client.Options{})
	require.NoError(t, err)
	gadgets := &unstructured.Unstructured{Object: crd(gadgetGroup, "gadgets", "Gadget")}
	require.NoError(t, client.IgnoreAlreadyExists(others.Create(t.Context(), gadgets)))
	require.Eventually(t, func() bool {
		list := &unstructured.UnstructuredList{Object: object{"apiVersion": gadgetGroup + "/v1", "kind": "GadgetList"}}
		return others.List(t.Context(), list) == nil
	}, time.Minute, 50*time.Millisecond)
	server.others = others
}

// TestHistoriesReachTheRelease plays a history for each seed.
func TestHistoriesReachTheRelease(t *testing.T) {
	prepare(t)
	var stats statistics
	t.Run("seeds", func(t *testing.T) {
		for i := range *seeds {
			seed := *first + uint64(i)
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				driver, err := newApplierDriver(server.config, nil, 4)
				require.NoError(t, err)
				check(t, seed, driver, &stats)
			})
		}
	})
	stats.log(t)
}

// check plays the history of a seed. If a property is violated, it searches for a shorter history and prints it.
func check(t *testing.T, seed uint64, driver Driver, stats *statistics) {
	t.Helper()
	sc := generator{rand.New(rand.NewPCG(seed, 0))}.scenario()
	name := fmt.Sprintf("s%d-%s", seed, strconv.FormatInt(time.Now().UnixNano(), 36))
	r, err := play(t.Context(), driver, server.others, sc, name)
	require.NoError(t, err, sc.print())
	stats.add(sc, r)
	if len(r.violations) == 0 {
		return
	}
	shorter := sc
	if *shorten {
		shorter, r = shrink(t.Context(), driver, server.others, sc, r, name)
	}
	lines := make([]string, len(r.violations))
	for i, v := range r.violations {
		lines[i] = "  " + strings.ReplaceAll(v.String(), "\n", "\n  ")
	}
	t.Errorf("seed %d: at step %d:\n%s\n\n%s\nrun it again: go test ./test/property -run '^%s$' -property.first %d -property.seeds 1",
		seed, r.step, strings.Join(lines, "\n"), shorter.print(), strings.Split(t.Name(), "/")[0], seed)
}
