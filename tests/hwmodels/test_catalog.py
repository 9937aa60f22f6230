"""The shipped catalog: complete, sourced, found by name, and strict when edited."""

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from hwmodels import catalog, documents, tables
from hwmodels.catalog import Gpu, Host, Interconnect, Kind, Stack
