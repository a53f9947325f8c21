package nodes

import (
	"fmt"
	"io"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cluster-version/cvo/internal/inputfile"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// readConfigs reads the MachineConfigs of files. The name - stands for in.
func readConfigs(files []string, in io.Reader) ([]*mcfgv1.MachineConfig, error) {
	var all []*mcfgv1.MachineConfig
	seen := map[string]string{}
	for _, file := range files {
		data, err := readFile(file, in)
		if err != nil {
			return nil, fmt.Errorf("reading --filename: %w", err)
		}
		if file == "-" {
			file = "stdin"
		}
		manifests, err := manifest.Parse(file, data, manifest.Limits{})
		if err != nil {
			return nil, &command.RefusedError{Err: err}
		}
		if len(manifests) == 0 {
			return nil, &command.RefusedError{Err: fmt.Errorf("%s contains no MachineConfig", file)}
		}
		for _, m := range manifests {
			mc, err := convert(m)
			if err != nil {
				return nil, &command.RefusedError{Err: fmt.Errorf("%s[%d]: %w", m.File, m.Document, err)}
			}
			if other, ok := seen[mc.Name]; ok {
				return nil, &command.RefusedError{Err: fmt.Errorf("%s and %s both contain MachineConfig %s: remove one", other, m.File, mc.Name)}
			}
			seen[mc.Name] = m.File
			all = append(all, mc)
		}
	}
	return all, nil
}

func readFile(file string, in io.Reader) ([]byte, error) {
	if file != "-" {
		return inputfile.Read(file)
	}
	data, err := io.ReadAll(io.LimitReader(in, inputfile.Max+1))
	if err == nil && len(data) > inputfile.Max {
		err = fmt.Errorf("stdin has more than %d MiB", inputfile.Max>>20)
	}
	return data, err
}

// convert returns the MachineConfig of a manifest. Like kubectl, it rejects unknown fields: the API server would drop them.
func convert(m *manifest.Manifest) (*mcfgv1.MachineConfig, error) {
	if !m.Is(api.MachineConfigGroup, "MachineConfig") {
		return nil, fmt.Errorf("%s is not a MachineConfig: remove it", m.ID())
	}
	mc := &mcfgv1.MachineConfig{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(m.Object.Object, mc, true); err != nil {
		return nil, fmt.Errorf("MachineConfig %s is invalid: %w", m.Object.GetName(), err)
	}
	return mc, nil
}
