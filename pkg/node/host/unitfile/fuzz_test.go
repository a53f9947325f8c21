package unitfile_test

import (
	"strings"
	"testing"

	"github.com/cluster-version/cvo/pkg/node/host/unitfile"
)

//threat:install-section
func FuzzInstallSection(f *testing.F) {
	f.Add("a.service", "[Install]\nWantedBy=multi-user.target b.target\nAlso=b.socket")
	f.Add("a@b.service", "[Install]\nRequiredBy=%i.target\\\n  %%p\nAlias=../%n")
	f.Add("a@.service", "[Install]\nDefaultInstance=../x\nUpheldBy=\n")
	f.Fuzz(func(t *testing.T, unit, text string) {
		found, err := unitfile.Parse(unit, unitfile.Folder+"/a.service", []string{text})
		if err != nil {
			return
		}
		for _, link := range found.Links {
			if !strings.HasPrefix(link, unitfile.Folder+"/") || strings.Contains(link, "/../") {
				t.Errorf("%q leads out of the folder of units", link)
			}
		}
	})
}
