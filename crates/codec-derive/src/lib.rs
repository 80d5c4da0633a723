//! `#[derive(Encode, Decode)]` for structs whose wire form is their fields in order.
//!
//! - `#[envelope(version = V, compat = C)]` on the struct wraps the fields in a versioned envelope.
//! - `#[since(N)]` on a field says that it is absent below struct version `N`; it then takes its `Default`.
//!
//! A type whose form depends on the peer's features, or is otherwise not a plain list, is written by hand.

use proc_macro::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Fields, LitInt, parse_macro_input};

#[proc_macro_derive(Encode, attributes(envelope, since))]
pub fn derive_encode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input, Side::Encode).unwrap_or_else(|e| e.to_compile_error()).into()
}

#[proc_macro_derive(Decode, attributes(envelope, since))]
pub fn derive_decode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input, Side::Decode).unwrap_or_else(|e| e.to_compile_error()).into()
}

enum Side {
    Encode,
    Decode,
}

fn expand(input: &DeriveInput, side: Side) -> syn::Result<proc_macro2::TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(syn::Error::new_spanned(input, "only structs can derive Encode and Decode"));
    };
    let envelope = envelope_of(input)?;
    let name = &input.ident;
    let text = name.to_string();
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    let members: Vec<_> = data.fields.members().collect();

    match side {
        Side::Encode => {
            let puts = quote! { #( ::codec::Encode::encode(&self.#members, w); )* };
            let body = match envelope {
                Some((version, compat)) => quote! { w.envelope(#version, #compat, |w| { #puts }); },
                None => puts,
            };
            Ok(quote! {
                impl #impl_generics ::codec::Encode for #name #type_generics #where_clause {
                    fn encode(&self, w: &mut ::codec::Writer) { #body }
                }
            })
        }
        Side::Decode => {
            let mut gets = Vec::new();
            let mut min_lens = Vec::new();
            for (field, member) in data.fields.iter().zip(&members) {
                let since = since_of(field)?;
                let ty = &field.ty;
                let label = match &data.fields {
                    Fields::Named(_) => field.ident.as_ref().expect("a named field has a name").to_string(),
                    _ => text.clone(),
                };
                gets.push(match (since, envelope) {
                    (Some(since), Some(_)) => quote! {
                        #member: ::codec::field(r, #label, version >= #since, ::core::default::Default::default)?
                    },
                    (Some(_), None) => {
                        return Err(syn::Error::new_spanned(field, "since needs an envelope on the struct"));
                    }
                    (None, _) => quote! {
                        #member: ::codec::field(r, #label, true, || unreachable!("always present"))?
                    },
                });
                min_lens.push(quote! { <#ty as ::codec::Decode>::MIN_LEN });
            }
            let (min_len, body) = match envelope {
                Some((supported, _)) => (
                    quote! { 6 },
                    quote! { r.envelope(#text, #supported, |r, version| { let _ = version; Ok(Self { #(#gets),* }) }) },
                ),
                None => (quote! { 0 #(+ #min_lens)* }, quote! { Ok(Self { #(#gets),* }) }),
            };
            Ok(quote! {
                impl #impl_generics ::codec::Decode for #name #type_generics #where_clause {
                    const MIN_LEN: usize = #min_len;
                    fn decode(r: &mut ::codec::Reader<'_>) -> ::core::result::Result<Self, ::codec::DecodeError> {
                        #body
                    }
                }
            })
        }
    }
}

fn envelope_of(input: &DeriveInput) -> syn::Result<Option<(u8, u8)>> {
    let Some(attr) = input.attrs.iter().find(|a| a.path().is_ident("envelope")) else { return Ok(None) };
    let (mut version, mut compat) = (None, None);
    attr.parse_nested_meta(|meta| {
        let value = meta.value()?.parse::<LitInt>()?.base10_parse::<u8>()?;
        if meta.path.is_ident("version") {
            version = Some(value);
        } else if meta.path.is_ident("compat") {
            compat = Some(value);
        } else {
            return Err(meta.error("envelope takes version and compat"));
        }
        Ok(())
    })?;
    match (version, compat) {
        (Some(v), Some(c)) => Ok(Some((v, c))),
        _ => Err(syn::Error::new_spanned(attr, "envelope needs version = N, compat = M")),
    }
}

fn since_of(field: &syn::Field) -> syn::Result<Option<u8>> {
    let Some(attr) = field.attrs.iter().find(|a| a.path().is_ident("since")) else { return Ok(None) };
    attr.parse_args::<LitInt>()?.base10_parse::<u8>().map(Some)
}
