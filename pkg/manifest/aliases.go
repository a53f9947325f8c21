package manifest

import (
	"bytes"

	yamlv2 "go.yaml.in/yaml/v2"
)

// CheckAliases refuses a YAML document whose aliases make it larger than a file may be. The library counts how often
// they are followed and not what they lead to: a hundred kilobytes of text can become gigabytes of JSON. It is for those
// who hand documents from outside to sigs.k8s.io/yaml; Parse counts by itself. What cannot be read is left for them to
// refuse, and so are the documents after the first.
func CheckAliases(data []byte) error {
	if bytes.IndexByte(data, '&') < 0 || bytes.IndexByte(data, '*') < 0 {
		return nil
	}
	var value any
	if err := yamlv2.NewDecoder(bytes.NewReader(data)).Decode(&value); err != nil {
		return nil //nolint:nilerr // see above
	}
	return expanded(value, &converter{left: Limits{}.WithDefaults().FileBytes})
}

// expanded takes from the budget what a value has once its aliases are replaced.
func expanded(value any, c *converter) error {
	switch v := value.(type) {
	case map[any]any:
		for key, item := range v {
			if err := expanded(key, c); err != nil {
				return err
			}
			if err := expanded(item, c); err != nil {
				return err
			}
		}
	case []any:
		for _, item := range v {
			if err := expanded(item, c); err != nil {
				return err
			}
		}
	case string:
		return c.spend(len(v) + 2)
	}
	return c.spend(2)
}
