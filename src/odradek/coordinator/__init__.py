"""Coordinators: state stored in the partitions of an internal topic, with decisions in memory."""
