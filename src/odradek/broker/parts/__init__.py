"""The parts of a broker: each module builds one, from its settings and the surroundings."""
