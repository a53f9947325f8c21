package cli

import (
	"flag"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// compatFlags are the flags of OpenShift's operator that have no meaning here, or none yet. They are accepted so that
// the Deployment of an existing payload starts this operator; using one is warned of.
type compatFlags struct{ set *pflag.FlagSet }

// compatMeaning tells for each flag why it changes nothing.
func compatMeaning() map[string]string {
	return map[string]string{
		"node-name":          "no pod has to run on the operator's node: payloads are pulled from the registry",
		"enable-auto-update": "updates are asked for by spec.desiredUpdate alone",
		"hypershift":         "the profile is chosen by CLUSTER_PROFILE alone",
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
	// klog's own flags, of which -v is ours.
	logging := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logging)
	logging.VisitAll(func(f *flag.Flag) {
		if f.Name != "v" && flags.Lookup(f.Name) == nil {
			flags.AddGoFlag(f)
			_ = flags.MarkHidden(f.Name)
		}
	})
}

// warn tells which of the flags were given although they change nothing.
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

// capabilityList reads a comma-separated list of capabilities.
func capabilityList(text string) []configv1.ClusterVersionCapability {
	var list []configv1.ClusterVersionCapability
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			list = append(list, configv1.ClusterVersionCapability(name))
		}
	}
	return list
}
