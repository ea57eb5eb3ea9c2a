package generation

// Agent returns the number of the agent, which is the stream's until Close.
func (s *Stream) Agent() uint32 { return s.p.id }
