package upgradeable

// updating objects while a release is being rolled out: components are tested with their neighbours one minor version
// apart, and two updates at once would put them further apart.
func updating(in Input) []Obstacle {
	if !in.Updating {
		return nil
	}
	return []Obstacle{{
		Source: SourceUpdating, Reason: "UpdateInProgress", Risk: SourceUpdating, URL: docs("update-in-progress"),
		Message: "An update is already in progress and the details are in the Progressing condition.",
	}}
}
