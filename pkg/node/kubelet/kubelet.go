// Package kubelet turns KubeletConfigs into MachineConfigs. It takes all KubeletConfigs and pools of a cluster. For each KubeletConfig it
// returns the MachineConfigs and the status, which names the invalid field if there is one. A MachineConfig has one file for the folder of the
// kubelet's flag --config-dir. The kubelet merges that file into its own configuration, which the node stage never writes. The package does
// not read the cluster: package generate writes its results, and package update waits for them.
package kubelet

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	nodeconfig "github.com/cluster-version/cvo/pkg/node/config"
)

// DefaultFolder is the default of Options.Folder. The documentation of Kubernetes uses it as the example for --config-dir.
const DefaultFolder = "/etc/kubernetes/kubelet.conf.d"

// Most is the maximum number of KubeletConfigs for a pool.
const Most = 10

// kind is the kind of owners of generated MachineConfigs.
const kind = "KubeletConfig"

// Options are the same for all KubeletConfigs.
type Options struct {
	// Version is the controller's version, which generated MachineConfigs record.
	Version string
	// Folder is the folder of the kubelets' flag --config-dir. The default is DefaultFolder.
	Folder string
}

// Plan is the result for one KubeletConfig.
type Plan struct {
	Config *mcfgv1.KubeletConfig
	// Suffix is the value of api.SuffixAnnotation: what the names of the MachineConfigs end with. It is empty for the first KubeletConfig of
	// a pool. HasSuffix is false if the KubeletConfig selects no pool or there are too many.
	Suffix    string
	HasSuffix bool
	// Names are the names of the MachineConfigs that belong to the KubeletConfig, one for each pool. If the KubeletConfig is invalid or selects no
	// pool, the existing ones keep the content of its last valid version.
	Names []string
	// MachineConfigs have these names and the current content. The list is empty if Err is not nil.
	MachineConfigs []*mcfgv1.MachineConfig
	// Err is the first reason why the KubeletConfig is invalid, or nil.
	Err *Error
}

// Plans returns a plan for each KubeletConfig that is not being deleted, from the oldest to the newest. pools are all pools and existing all
// MachineConfigs of the cluster. Plans does not change its inputs, and the MachineConfigs share nothing with them.
func Plans(configs []mcfgv1.KubeletConfig, pools []mcfgv1.MachineConfigPool, existing []mcfgv1.MachineConfig, o Options) []Plan {
	o.Folder = cmp.Or(o.Folder, DefaultFolder)
	var all []*selection
	for i := range configs {
		if configs[i].DeletionTimestamp == nil {
			all = append(all, newSelection(&configs[i], pools, existing))
		}
	}
	slices.SortFunc(all, func(a, b *selection) int {
		return cmp.Or(a.config.CreationTimestamp.Compare(b.config.CreationTimestamp.Time), cmp.Compare(a.config.Name, b.config.Name))
	})
	assignNumbers(all)
	plans := make([]Plan, len(all))
	for i, s := range all {
		plans[i] = s.plan(existing, o)
	}
	return plans
}

// Unused returns the generated MachineConfigs that belong to none of the plans.
func Unused(existing []mcfgv1.MachineConfig, plans []Plan) []*mcfgv1.MachineConfig {
	var unused []*mcfgv1.MachineConfig
	for i := range existing {
		mc := &existing[i]
		if isGenerated(mc) && !slices.ContainsFunc(plans, func(p Plan) bool { return slices.Contains(p.Names, mc.Name) }) {
			unused = append(unused, mc)
		}
	}
	return unused
}

// Pending are the KubeletConfigs whose MachineConfigs may be missing or old.
type Pending struct{ configs []pending }

// pending is a KubeletConfig. It is not pending in the pools that have its MachineConfig.
type pending struct {
	name     string
	selector labels.Selector
	written  []string
}

// NewPending returns the pending ones of all KubeletConfigs of the cluster. existing are all its MachineConfigs, and version is the controller's:
// a MachineConfig that another version generated may change.
func NewPending(configs []mcfgv1.KubeletConfig, existing []mcfgv1.MachineConfig, version string) Pending {
	var p Pending
	written := map[types.UID][]string{}
	for i := range existing {
		if owner := metav1.GetControllerOfNoCopy(&existing[i]); owner != nil && owner.Kind == kind && existing[i].Annotations[api.GeneratedByAnnotation] == version {
			written[owner.UID] = append(written[owner.UID], existing[i].Labels[api.MachineConfigRoleLabel])
		}
	}
	for i := range configs {
		config := &configs[i]
		isObserved := config.Status.ObservedGeneration == config.Generation
		selector, err := selectorOf(config)
		if err != nil || config.DeletionTimestamp != nil || isObserved && !isAccepted(config) {
			continue
		}
		next := pending{name: config.Name, selector: selector}
		if isObserved {
			next.written = written[config.UID]
		}
		p.configs = append(p.configs, next)
	}
	return p
}

// Of returns the name of the first pending KubeletConfig of a pool, or "".
func (p Pending) Of(pool *mcfgv1.MachineConfigPool) string {
	for _, config := range p.configs {
		if config.selector.Matches(labels.Set(pool.Labels)) && !slices.Contains(config.written, pool.Name) {
			return config.name
		}
	}
	return ""
}

// isGenerated reports whether a MachineConfig belongs to a KubeletConfig.
func isGenerated(mc *mcfgv1.MachineConfig) bool {
	owner := metav1.GetControllerOfNoCopy(mc)
	return owner != nil && owner.Kind == kind
}

// selectorOf returns the selector of a KubeletConfig's pools. An empty one selects nothing.
func selectorOf(config *mcfgv1.KubeletConfig) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(config.Spec.MachineConfigPoolSelector)
	if err != nil {
		return nil, err
	}
	if selector.Empty() {
		return labels.Nothing(), nil
	}
	return selector, nil
}

// selection is a KubeletConfig with the names of its pools.
type selection struct {
	config *mcfgv1.KubeletConfig
	pools  []string
	// numbered are the pools in which no other KubeletConfig may have the number: those of its MachineConfigs if it selects none.
	numbered []string
	// number is the KubeletConfig's number in each of these pools, or noNumber.
	number int
	err    error
}

const noNumber = -1

func newSelection(config *mcfgv1.KubeletConfig, pools []mcfgv1.MachineConfigPool, existing []mcfgv1.MachineConfig) *selection {
	s := &selection{config: config, number: noNumber}
	selector, err := selectorOf(config)
	for i := range pools {
		if err == nil && selector.Matches(labels.Set(pools[i].Labels)) {
			s.pools = append(s.pools, pools[i].Name)
		}
	}
	slices.Sort(s.pools)
	s.err, s.numbered = err, s.pools
	for i := range existing {
		if len(s.pools) == 0 && metav1.IsControlledBy(&existing[i], config) {
			s.numbered = append(s.numbered, existing[i].Labels[api.MachineConfigRoleLabel])
		}
	}
	return s
}

// assignNumbers gives each KubeletConfig a number that no other one of its pools has. A KubeletConfig keeps the number that it remembers. A
// new one gets the number after the highest in use, because the higher number overrides the lower. If the highest is in use, it gets the
// highest free one.
func assignNumbers(all []*selection) {
	used := map[string][]int{}
	isUsed := func(s *selection, number int) bool {
		return slices.ContainsFunc(s.numbered, func(pool string) bool { return slices.Contains(used[pool], number) })
	}
	use := func(s *selection, number int) {
		s.number = number
		for _, pool := range s.numbered {
			used[pool] = append(used[pool], number)
		}
	}
	for _, s := range all {
		if number := remembered(s.config); number != noNumber && !isUsed(s, number) {
			use(s, number)
		}
	}
	for _, s := range all {
		if s.number != noNumber {
			continue
		}
		next := 0
		for number := range Most {
			if isUsed(s, number) {
				next = number + 1
			}
		}
		for next == Most || next >= 0 && isUsed(s, next) {
			next--
		}
		if next >= 0 {
			use(s, next)
		}
	}
}

// remembered returns the number in the annotation of a KubeletConfig, or noNumber.
func remembered(config *mcfgv1.KubeletConfig) int {
	suffix, ok := config.Annotations[api.SuffixAnnotation]
	if !ok {
		return noNumber
	}
	if suffix == "" {
		return 0
	}
	number, err := strconv.Atoi(suffix)
	if err != nil || number < 1 || number >= Most || suffix != strconv.Itoa(number) {
		return noNumber
	}
	return number
}

func (s *selection) plan(existing []mcfgv1.MachineConfig, o Options) Plan {
	p := Plan{Config: s.config}
	check := checker{name: s.config.Name}
	switch {
	case s.err != nil:
		p.Err = check.errorf("spec.machineConfigPoolSelector", "correct it", "is no selector: %v", s.err)
		p.Names = s.owned(existing)
		return p
	case len(s.pools) == 0:
		p.Err = check.errorf("spec.machineConfigPoolSelector", "select a label of a pool, such as "+api.PoolLabelPrefix+api.WorkerPool, "selects no MachineConfigPool")
		p.Names = s.owned(existing)
		return p
	case s.number == noNumber:
		p.Err = check.errorf("spec.machineConfigPoolSelector", "combine some of them into one", "selects a MachineConfigPool that has %d KubeletConfigs already", Most)
		p.Names = s.owned(existing)
		return p
	}
	p.HasSuffix = true
	end := ""
	if s.number > 0 {
		p.Suffix = strconv.Itoa(s.number)
		end = "-" + p.Suffix
	}
	file, err := check.file(s.config.Spec, slices.Contains(s.pools, api.ControlPlanePool))
	p.Err = err
	for _, pool := range s.pools {
		name := "99-" + pool + "-generated-kubelet" + end
		p.Names = append(p.Names, name)
		if p.Err == nil && slices.ContainsFunc(existing, func(mc mcfgv1.MachineConfig) bool { return mc.Name == name && !isGenerated(&mc) }) {
			p.Err = check.errorf("spec.machineConfigPoolSelector", "rename that MachineConfig",
				"selects MachineConfigPool %s, but MachineConfig %s exists and belongs to no KubeletConfig", pool, name)
		}
	}
	if p.Err != nil {
		return p
	}
	for i, pool := range s.pools {
		p.MachineConfigs = append(p.MachineConfigs, s.machineConfig(p.Names[i], pool, file, o))
	}
	return p
}

// owned returns the names of the existing MachineConfigs of the KubeletConfig.
func (s *selection) owned(existing []mcfgv1.MachineConfig) []string {
	var names []string
	for i := range existing {
		if metav1.IsControlledBy(&existing[i], s.config) {
			names = append(names, existing[i].Name)
		}
	}
	return names
}

// machineConfig returns a MachineConfig that writes the file.
func (s *selection) machineConfig(name, pool string, file []byte, o Options) *mcfgv1.MachineConfig {
	raw, err := json.Marshal(map[string]any{
		"ignition": map[string]any{"version": "3.5.0"},
		"storage": map[string]any{"files": []any{map[string]any{
			"path":     path.Join(o.Folder, fileName(pool, s.number)),
			"mode":     0o644,
			"contents": map[string]any{"source": "data:;base64," + base64.StdEncoding.EncodeToString(file)},
		}}},
	})
	if err != nil {
		panic(err) // texts and numbers have JSON
	}
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{
		Name:            name,
		Labels:          map[string]string{api.MachineConfigRoleLabel: pool},
		Annotations:     map[string]string{api.GeneratedByAnnotation: o.Version},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.config, mcfgv1.GroupVersion.WithKind(kind))},
	}}
	mc.Spec.Config.Raw = raw
	return mc
}

// fileName returns the name of the file on nodes. The kubelet skips files that do not end in .conf. Nodes of a custom pool have the files of the
// workers, too: a digit sorts before a letter, so the custom pool's files override these.
func fileName(pool string, number int) string {
	if pool == api.WorkerPool {
		return fmt.Sprintf("%s%d.conf", nodeconfig.KubeletFile, number)
	}
	return fmt.Sprintf("%spool-%d.conf", nodeconfig.KubeletFile, number)
}

// Error is the first reason why a KubeletConfig cannot be used. Its text is one sentence for the administrator of a cluster.
type Error struct {
	// Name is the name of the KubeletConfig, and Path the JSON path of the invalid field.
	Name, Path string
	// Problem continues a sentence that begins with the path. Remedy is an instruction.
	Problem, Remedy string
}

func (e *Error) Error() string {
	return fmt.Sprintf("KubeletConfig %s is invalid: %s %s; %s", e.Name, e.Path, e.Problem, e.Remedy)
}
