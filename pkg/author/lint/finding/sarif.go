package finding

import "net/url"

// The subset of SARIF 2.1.0 (OASIS static analysis results interchange format) that code hosts use.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name  string      `json:"name"`
		Rules []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string     `json:"id"`
		Summary sarifText  `json:"shortDescription"`
		Why     sarifText  `json:"fullDescription"`
		Help    sarifText  `json:"help"`
		Default sarifLevel `json:"defaultConfiguration"`
	}
	sarifLevel struct {
		Level string `json:"level"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
)

// SARIF returns the report in a format for code hosts, which show findings next to changed lines. The caller encodes it as JSON.
func SARIF(r *Report) any {
	run := sarifRun{Results: make([]sarifResult, 0, len(r.Findings))}
	run.Tool.Driver.Name = "cvo release lint"
	index := map[string]int{}
	for i, rule := range Rules() {
		index[rule.ID] = i
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{
			ID: rule.ID, Summary: sarifText{rule.Summary}, Why: sarifText{rule.Why}, Help: sarifText{rule.Remedy},
			Default: sarifLevel{rule.Severity.sarif()},
		})
	}
	for _, f := range r.Findings {
		at := sarifPhysical{Artifact: sarifArtifact{URI: (&url.URL{Path: f.File}).String()}}
		if f.Line > 0 {
			at.Region = &sarifRegion{StartLine: f.Line}
		}
		run.Results = append(run.Results, sarifResult{
			RuleID: f.Rule, RuleIndex: index[f.Rule], Level: f.Severity.sarif(),
			Message: sarifText{f.subject() + f.Message + " (" + f.Remedy + ")"}, Locations: []sarifLocation{{at}},
		})
	}
	return sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
}

func (s Severity) sarif() string {
	if s == Info {
		return "note"
	}
	return string(s)
}
