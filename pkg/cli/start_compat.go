package cli

import (
	"flag"
	"slices"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// compatFlags are flags of OpenShift's operator that have no effect here. The operator accepts them with a warning, so that the Deployment
// of an existing payload can start it.
type compatFlags struct{ set *pflag.FlagSet }

// compatMeaning returns the reason why each flag has no effect.
func compatMeaning() map[string]string {
	return map[string]string{
		"node-name":          "the operator pulls payloads from the registry and needs no pod on its node",
		"enable-auto-update": "only spec.desiredUpdate requests updates",
		"hypershift":         "only CLUSTER_PROFILE selects the profile",
	}
}

func (c *compatFlags) add(flags *pflag.FlagSet) {
	c.set = flags
	for _, name := range []string{"enable-auto-update", "hypershift"} {
		flags.Bool(name, false, "accepted for compatibility: "+compatMeaning()[name])
		_ = flags.MarkHidden(name)
	}
	for name, meaning := range compatMeaning() {
		if flags.Lookup(name) == nil {
			flags.String(name, "", "accepted for compatibility: "+meaning)
			_ = flags.MarkHidden(name)
		}
	}
	// klog's own flags, except -v, which this program defines.
	logging := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logging)
	logging.VisitAll(func(f *flag.Flag) {
		if f.Name != "v" && flags.Lookup(f.Name) == nil {
			flags.AddGoFlag(f)
			_ = flags.MarkHidden(f.Name)
		}
	})
}

// warn logs the given flags that have no effect.
func (c *compatFlags) warn(log logr.Logger) {
	meaning := compatMeaning()
	var given []string
	c.set.Visit(func(f *pflag.Flag) {
		if _, ok := meaning[f.Name]; ok && f.Value.String() != f.DefValue {
			given = append(given, f.Name)
		}
	})
	slices.Sort(given)
	for _, name := range given {
		log.Info("flag has no effect", "flag", "--"+name, "because", meaning[name])
	}
}
