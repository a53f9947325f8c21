//go:build linux

package host

import (
	"strings"
	"testing"
)

//threat:install-section
func FuzzInstallSection(f *testing.F) {
	f.Add("a.service", "[Install]\nWantedBy=multi-user.target b.target\nAlso=b.socket")
	f.Add("a@b.service", "[Install]\nRequiredBy=%i.target\\\n  %%p\nAlias=../%n")
	f.Add("a@.service", "[Install]\nDefaultInstance=../x\nUpheldBy=\n")
	f.Fuzz(func(t *testing.T, unit, text string) {
		found, err := parse(unit, units+"/a.service", []string{text})
		if err != nil {
			return
		}
		for _, link := range found.links {
			if !strings.HasPrefix(link, units+"/") || strings.Contains(link, "/../") {
				t.Errorf("%q leads out of the folder of units", link)
			}
		}
	})
}
