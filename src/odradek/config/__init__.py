"""Configuration: keys declared beside their readers, sources merged by strength. Pure."""

from odradek.config.agreement import SettingDifference, agreed_values, differences
from odradek.config.checks import AtLeast, Between, EachOneOf, NonEmpty, OneOf, Rule, ValueCheck
from odradek.config.declaration import (
    REQUIRED,
    ConfigKey,
    Definition,
    Synonym,
    Update,
    check_declared,
    inherited_key,
    key,
    keys_of,
    plain_field,
    synonym,
)
from odradek.config.properties import parse_assignments, parse_properties
from odradek.config.reference import render_reference
from odradek.config.settings import Level, Setting, Settings, SettingSource, UnknownKey
from odradek.config.values import HIDDEN, Kind, Password, Value, format_value

__all__ = [
    "HIDDEN",
    "REQUIRED",
    "AtLeast",
    "Between",
    "ConfigKey",
    "Definition",
    "EachOneOf",
    "Kind",
    "Level",
    "NonEmpty",
    "OneOf",
    "Password",
    "Rule",
    "Setting",
    "SettingDifference",
    "SettingSource",
    "Settings",
    "Synonym",
    "UnknownKey",
    "Update",
    "Value",
    "ValueCheck",
    "agreed_values",
    "check_declared",
    "differences",
    "format_value",
    "inherited_key",
    "key",
    "keys_of",
    "parse_assignments",
    "parse_properties",
    "plain_field",
    "render_reference",
    "synonym",
]
