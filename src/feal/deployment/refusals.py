"""Why a SuperNode could not stay with the coordinator, told from its last words."""

from __future__ import annotations

from dataclasses import dataclass

from feal.deployment.addresses import host_and_port
from feal.deployment.places import SiteSettings


@dataclass(frozen=True)
class Refusal:
    """What a person is told, and whether it would be no use to try again."""

    sentence: str
    final: bool


# What OpenSSL and Flower say. Time, or the coordinator's people, may mend what is not final.
_MEANING = {
    "certificate has expired": Refusal(
        "The certificate of the coordinator at {address} has expired: it must be renewed there. Trying again.",
        False,
    ),
    "certificate is not yet valid": Refusal(
        "The certificate of the coordinator at {address} is not valid yet: is this machine's clock right? "
        "Trying again.",
        False,
    ),
    "certificate is not valid for": Refusal(
        "The certificate of the coordinator at {address} does not name {host}: dial a name that it has, "
        "or have one made with this name.",
        True,
    ),
    "certificate verify failed": Refusal(
        "The coordinator at {address} has no certificate of {authority}: get that file from it again.",
        True,
    ),
    "WRONG_VERSION_NUMBER": Refusal(
        "What listens at {address} speaks no TLS: is that the coordinator's port?", True
    ),
    # Nobody asked it to: it does so where its signature is refused.
    "terminated gracefully": Refusal(
        "The coordinator at {address} refuses what this site signs: are the clocks of both right? Trying again.",
        False,
    ),
}


def refusal(words: str, site: SiteSettings) -> Refusal | None:
    """What a SuperNode meant that ended by itself with these words, if it is known.

    >>> site = SiteSettings(name="alder", coordinator="hub.example.org:9092")
    >>> refusal("[SSL: WRONG_VERSION_NUMBER] wrong version number", site).sentence
    "What listens at hub.example.org:9092 speaks no TLS: is that the coordinator's port?"
    """
    host, _ = host_and_port(site.coordinator)
    for said, meant in _MEANING.items():
        if said in words:
            sentence = meant.sentence.format(address=site.coordinator, host=host, authority=site.authority)
            return Refusal(sentence, meant.final)
    return None
