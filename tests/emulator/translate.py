"""template.yaml as CloudFormation sees it after the SAM transform.

    translate.py TEMPLATE OUTPUT

Needs the packages of .ci/requirements.txt, the emulator those of its own: their pins do not fit together.
"""

import json
import sys

from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse


class NoManagedPolicies:
    def load(self):
        return {}


with open(sys.argv[1], encoding="utf-8") as source:
    template = yaml_parse(source.read())
# As `sam package` leaves it.
template["Globals"]["Function"]["CodeUri"] = "s3://code/function.zip"
with open(sys.argv[2], "w", encoding="utf-8") as output:
    json.dump(transform(template, {}, NoManagedPolicies()), output)
